//! The table of notices. `docs/notices.md` has it for people, and a test compares the two.

use sealog_control::Role;

/// A kind of notice.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Of its template in the outbox.
    pub name: &'static str,
    /// As people choose it.
    pub label: &'static str,
    /// In words.
    pub to: &'static str,
    /// Of members who may get it, and choose whether they want it if it is optional.
    pub roles: &'static [Role],
    pub is_optional: bool,
}

impl Kind {
    pub fn is_for(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }
}

macro_rules! kinds {
    ($($kind:ident = $name:literal, $label:literal, $to:literal, $roles:expr, $is_optional:expr;)*) => {
        $(pub static $kind: Kind =
            Kind { name: $name, label: $label, to: $to, roles: $roles, is_optional: $is_optional };)*

        /// All of them.
        pub static KINDS: &[&Kind] = &[$(&$kind),*];
    };
}

const NOBODY: &[Role] = &[];
/// Those who look after an organisation.
pub const MANAGERS: &[Role] = &[Role::Owner, Role::Admin];
const ALWAYS: bool = false;
const OPTIONAL: bool = true;

kinds! {
    INVITATION = "invitation", "An invitation", "the invited address", NOBODY, ALWAYS;
    RESET = "reset", "A link to a new password", "the person", NOBODY, ALWAYS;
    NEW_DEVICE = "new_device", "A sign-in from a new browser", "the person", NOBODY, ALWAYS;
    QUOTA = "quota", "80 % and 100 % of a month's events are used", "the organisation's contact, or else its first owner", NOBODY, ALWAYS;
    VERIFICATION_FAILED = "verification_failed", "A chain is broken", "owners, admins and the contact", MANAGERS, ALWAYS;
    INTEGRITY_REPORT = "integrity_report", "The weekly integrity report", "owners, admins and the contact", MANAGERS, OPTIONAL;
    KEY_EXPIRING = "key_expiring", "A key is about to expire (14 days, 7 days and 1 day before)", "owners and admins", MANAGERS, OPTIONAL;
    KEY_EXPIRED = "key_expired", "A key has expired", "owners and admins", MANAGERS, OPTIONAL;
    TRIAL_ENDING = "trial_ending", "The trial is about to end (7 days and 1 day before)", "owners and admins", MANAGERS, OPTIONAL;
    TRIAL_ENDED = "trial_ended", "The trial has ended", "owners and admins", MANAGERS, OPTIONAL;
    AUDITOR_ENDING = "auditor_ending", "Auditor access is about to end (7 days and 1 day before)", "the auditor, owners and admins",
        &[Role::Owner, Role::Admin, Role::Auditor], OPTIONAL;
    EXPORT_READY = "export_ready", "Your export is ready", "the person who created it",
        &[Role::Owner, Role::Admin, Role::PrivacyOfficer, Role::Auditor], OPTIONAL;
    CASE_ASSIGNED = "case_assigned", "A case was assigned to you", "its assignee", &[Role::Owner, Role::PrivacyOfficer], OPTIONAL;
    CASE_DUE = "case_due", "A case is due soon (7, 3 and 1 days before) or overdue", "its assignee, or else privacy officers, or else owners",
        &[Role::Owner, Role::PrivacyOfficer], OPTIONAL;
}

/// By its name.
pub fn find(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_table_is_this_one() {
        let documented = include_str!("../../../../../docs/notices.md");
        for kind in KINDS {
            let choice = if kind.is_optional { "optional" } else { "always" };
            let row = format!("| `{}` | {} | {} | {choice} |", kind.name, kind.label, kind.to);
            assert!(documented.contains(&row), "docs/notices.md lacks the row\n{row}");
        }
        let rows = documented.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, KINDS.len(), "docs/notices.md has a notice that there is not");
    }

    #[test]
    fn what_somebody_can_turn_off_is_for_somebody() {
        for kind in KINDS {
            assert_eq!(find(kind.name), Some(*kind));
            assert!(!kind.is_optional || !kind.roles.is_empty(), "{}", kind.name);
        }
        assert!(!VERIFICATION_FAILED.is_optional);
    }
}
