//! What each role may do: one table.

use sealog_control::Role;

/// Something that a page or a form needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    ReadEvents,
    Verify,
    /// Make and download files of events.
    Export,
    /// See the chain of what people do here.
    SystemLog,
    ViewKeys,
    /// Create and revoke them.
    TestKeys,
    LiveKeys,
    /// See, create and revoke tokens of outsiders who watch a chain.
    MonitorTokens,
    ViewProjects,
    ManageProjects,
    ManageMembers,
    ViewUsage,
    ViewFrameworks,
    /// Enable and disable them.
    ManageFrameworks,
    ViewActions,
    ManageActions,
    /// What holds for the whole organisation.
    ManageSettings,
    /// Show others one's own saved views.
    ShareViews,
    /// Remove those of others.
    ManageViews,
    /// Auditors see closed ones.
    ViewCases,
    /// Open them, and take their steps.
    ManageCases,
}

const YES: bool = true;
const NO: bool = false;

/// In the order of [`Role::ALL`]: owner, admin, developer, privacy officer, auditor.
#[rustfmt::skip]
pub const CAPABILITIES: &[(Capability, [bool; 5])] = &[
    (Capability::ReadEvents,    [YES, YES, YES, YES, YES]),
    (Capability::Verify,        [YES, YES, YES, YES, YES]),
    (Capability::Export,        [YES, YES, NO,  YES, YES]),
    (Capability::SystemLog,     [YES, YES, NO,  YES, YES]),
    (Capability::ViewKeys,      [YES, YES, YES, NO,  YES]),
    (Capability::TestKeys,      [YES, YES, YES, NO,  NO]),
    (Capability::LiveKeys,      [YES, YES, NO,  NO,  NO]),
    (Capability::MonitorTokens, [YES, NO,  NO,  NO,  NO]),
    (Capability::ViewProjects,  [YES, YES, NO,  NO,  NO]),
    (Capability::ManageProjects, [YES, YES, NO,  NO,  NO]),
    (Capability::ManageMembers, [YES, YES, NO,  NO,  NO]),
    (Capability::ViewUsage,     [YES, YES, YES, YES, NO]),
    (Capability::ViewFrameworks, [YES, YES, YES, YES, YES]),
    (Capability::ManageFrameworks, [YES, YES, NO, NO, NO]),
    (Capability::ViewActions,   [YES, YES, YES, NO,  YES]),
    (Capability::ManageActions, [YES, YES, YES, NO,  NO]),
    (Capability::ManageSettings, [YES, YES, NO, NO,  NO]),
    (Capability::ShareViews,    [YES, YES, YES, YES, NO]),
    (Capability::ManageViews,   [YES, YES, NO,  NO,  NO]),
    (Capability::ViewCases,     [YES, YES, NO,  YES, YES]),
    (Capability::ManageCases,   [YES, NO,  NO,  YES, NO]),
];

pub fn may(role: Role, capability: Capability) -> bool {
    CAPABILITIES.iter().any(|(known, roles)| *known == capability && roles[role as usize])
}

pub(crate) fn may_give(role: Role, given: Role) -> bool {
    may(role, Capability::ManageMembers) && role.may_give(given)
}
