//! What each role is: one table. What its pages let it do is in the dashboard's `capability.rs`.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Owner,
    Admin,
    Developer,
    PrivacyOfficer,
    Auditor,
}

/// A row of the table.
#[derive(Debug)]
pub struct RoleRules {
    pub role: Role,
    /// As it is stored, and in the API.
    pub name: &'static str,
    pub label: &'static str,
    /// The roles that its members may give to others and take from them.
    pub gives: &'static [Role],
    /// It sees the projects and days that it was granted, and of cases the closed ones. Others see all.
    pub has_window: bool,
    /// Each view is sealed into the system chain before it is shown.
    pub seals_views: bool,
    /// It sees nothing before its authenticator is set up.
    pub needs_second_factor: bool,
    /// Its membership ends after so many days, unless another date was chosen.
    pub grant_days: Option<u64>,
    /// It can be given cases.
    pub takes_cases: bool,
}

use Role::{Admin, Auditor, Developer, Owner, PrivacyOfficer};

#[rustfmt::skip]
static ROLES: [RoleRules; 5] = [
    RoleRules { role: Owner, name: "owner", label: "Owner", gives: &Role::ALL, has_window: false, seals_views: false, needs_second_factor: false, grant_days: None, takes_cases: true },
    // Admins have no say over owners: neither over those who are, nor over who becomes one.
    RoleRules { role: Admin, name: "admin", label: "Admin", gives: &[Admin, Developer, PrivacyOfficer, Auditor], has_window: false, seals_views: false, needs_second_factor: false, grant_days: None, takes_cases: false },
    RoleRules { role: Developer, name: "developer", label: "Developer", gives: &[], has_window: false, seals_views: false, needs_second_factor: false, grant_days: None, takes_cases: false },
    RoleRules { role: PrivacyOfficer, name: "privacy_officer", label: "Privacy officer", gives: &[], has_window: false, seals_views: false, needs_second_factor: false, grant_days: None, takes_cases: true },
    RoleRules { role: Auditor, name: "auditor", label: "Auditor", gives: &[], has_window: true, seals_views: true, needs_second_factor: true, grant_days: Some(90), takes_cases: false },
];

impl Role {
    pub const ALL: [Role; 5] = [Owner, Admin, Developer, PrivacyOfficer, Auditor];

    pub fn rules(self) -> &'static RoleRules {
        &ROLES[self as usize]
    }

    pub fn as_str(self) -> &'static str {
        self.rules().name
    }

    pub fn may_give(self, given: Role) -> bool {
        self.rules().gives.contains(&given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_has_its_own_row() {
        assert_eq!(Role::ALL.map(|role| role.rules().role), Role::ALL);
    }
}
