//! The vocabulary of system chains: every action that Sealog itself seals. No key can send one, since the
//! catalog keeps the prefix `sealog.` for them.

/// An action of the vocabulary. Category and severity are words of the catalog.
#[derive(Debug, PartialEq, Eq)]
pub struct SystemAction {
    pub action: &'static str,
    pub category: &'static str,
    pub severity: &'static str,
    pub description: &'static str,
}

macro_rules! vocabulary {
    ($($name:ident = $action:literal, $category:literal, $severity:literal, $description:literal;)*) => {
        $(pub static $name: SystemAction = SystemAction {
            action: $action, category: $category, severity: $severity, description: $description,
        };)*

        /// All of them, for pages and documents that list them.
        pub static ALL: &[&SystemAction] = &[$(&$name),*];
    };
}

vocabulary! {
    TENANT_CREATED = "sealog.tenant_created", "configuration", "info", "The organisation was created.";
    TENANT_CHANGED = "sealog.tenant_changed", "configuration", "info",
        "Name, plan, contact, trial, billing or rate of the organisation was changed.";
    PROJECT_CREATED = "sealog.project_created", "configuration", "info", "A project was created.";
    PROJECT_CHANGED = "sealog.project_changed", "configuration", "info", "Name or rate of a project was changed.";
    FRAMEWORKS_CHANGED = "sealog.frameworks_changed", "configuration", "warning",
        "Frameworks were enabled or disabled for a project.";
    KEY_CREATED = "sealog.key_created", "api_key", "warning", "An API key was created.";
    KEY_REVOKED = "sealog.key_revoked", "api_key", "warning", "An API key was revoked.";
    KEY_ROLLED = "sealog.key_rolled", "api_key", "warning",
        "An API key was made in place of another, which works no longer than it says.";
    KEY_POLICY_CHANGED = "sealog.key_policy_changed", "api_key", "warning",
        "The longest lifetime of new API keys was set or removed.";
    SETTINGS_CHANGED = "sealog.settings_changed", "configuration", "warning",
        "Security, time zone or privacy text of the organisation was changed.";
    ACTION_RETIRED = "sealog.action_retired", "configuration", "warning",
        "A custom action was retired: new events with it are refused.";
    ACTION_CREATED = "sealog.action_created", "configuration", "info", "A custom action was registered.";
    MEMBER_ADDED = "sealog.member_added", "access_control", "warning", "Somebody became a member.";
    MEMBER_CHANGED = "sealog.member_changed", "access_control", "warning",
        "Role, grants or end of a membership was changed.";
    MEMBER_INVITED = "sealog.member_invited", "access_control", "warning", "Somebody was invited to become a member.";
    INVITATION_WITHDRAWN = "sealog.invitation_withdrawn", "access_control", "info", "An invitation was taken back.";
    ACCOUNT_CLAIMED = "sealog.account_claimed", "access_control", "warning",
        "The owner that the first run made got an address and a password.";
    SIGNED_IN = "sealog.signed_in", "auth", "info", "A member signed in to the dashboard.";
    SIGN_IN_FAILED = "sealog.sign_in_failed", "auth", "warning",
        "Somebody failed to sign in as a member, with a wrong password or code; at most one event a minute, with counts.";
    PASSWORD_CHANGED = "sealog.password_changed", "auth", "warning",
        "A member changed the password, or set a new one by a link.";
    RESET_LINK_MADE = "sealog.reset_link_made", "auth", "warning",
        "Somebody on the host of the server made a link that sets a new password for a member, or claims the first owner's account.";
    AUTHENTICATOR_CHANGED = "sealog.authenticator_changed", "auth", "warning",
        "A member set up or removed an authenticator, or made new recovery codes.";
    EVENTS_VIEWED = "sealog.events_viewed", "data_access", "info", "An auditor looked at a list of events.";
    EVENT_VIEWED = "sealog.event_viewed", "data_access", "info", "An auditor looked at an event.";
    PAGE_VIEWED = "sealog.page_viewed", "data_access", "info",
        "An auditor looked at figures, keys, verifications, exports, cases, shared views or the system log.";
    VIEW_SHARED = "sealog.view_shared", "configuration", "info",
        "Somebody shared a saved view with those who may see a project, or changed one that is shared.";
    VIEW_UNSHARED = "sealog.view_unshared", "configuration", "info", "A shared view was taken back or removed.";
    EXPORT_CREATED = "sealog.export_created", "data_access", "warning", "Somebody made an export of events.";
    EXPORT_DOWNLOADED = "sealog.export_downloaded", "data_access", "warning",
        "Somebody downloaded an export of events.";
    EXPORT_REMOVED = "sealog.export_removed", "data_access", "info",
        "An export that was downloaded gave way to a newer one.";
    CASE_OPENED = "sealog.case_opened", "gdpr", "info", "Somebody opened a case for a request of a data subject.";
    CASE_MOVED = "sealog.case_moved", "gdpr", "info",
        "Somebody brought a case from one state to another; the note is in the case, its salted digest here.";
    CASE_CHANGED = "sealog.case_changed", "gdpr", "info",
        "Somebody changed what a case holds; the names of the fields are here, never what they held.";
    CASE_HOLIDAYS_CHANGED = "sealog.case_holidays_changed", "configuration", "info",
        "The days off that statutory dates go by were changed.";
    CASE_REGISTER_DOWNLOADED = "sealog.case_register_downloaded", "data_access", "warning",
        "Somebody downloaded the register of cases.";
    VERIFICATION_STARTED = "sealog.verification_started", "configuration", "info",
        "Somebody started the verification of a chain.";
    VERIFICATION_CANCELLED = "sealog.verification_cancelled", "configuration", "info",
        "Somebody cancelled the verification of a chain.";
    VERIFICATION_ENDED = "sealog.verification_ended", "configuration", "info",
        "A verification found nothing wrong with a chain.";
    CASE_SEARCH_STARTED = "sealog.case_search_started", "data_access", "warning",
        "Somebody started a search for the events of a data subject.";
    CASE_SEARCH_STOPPED = "sealog.case_search_stopped", "data_access", "info",
        "Somebody stopped the search of a case.";
    CASE_SEARCH_RESUMED = "sealog.case_search_resumed", "data_access", "info",
        "Somebody let the search of a case go on.";
    CASE_SEARCH_ENDED = "sealog.case_search_ended", "data_access", "info",
        "The search of a case has ended; what it found is frozen in the case.";
    CASE_REVIEWED = "sealog.case_reviewed", "data_access", "info",
        "Somebody decided what of the found events is disclosed: how many, and how.";
    CASE_PACKAGE_STARTED = "sealog.case_package_started", "data_access", "warning",
        "Somebody asked for the package of a case.";
    CASE_PACKAGE_BUILT = "sealog.case_package_built", "data_access", "info",
        "The package of a case was made, with this digest.";
    CASE_PACKAGE_DOWNLOADED = "sealog.case_package_downloaded", "data_access", "warning",
        "Somebody downloaded the package of a case.";
    CASE_PACKAGE_DROPPED = "sealog.case_package_dropped", "data_access", "info",
        "The package of a case has expired and was removed; its digest stays.";
    CASE_LETTER_CHANGED = "sealog.case_letter_changed", "data_access", "info",
        "Somebody edited a letter of a case.";
    NOTICES_CHOSEN = "sealog.notices_chosen", "configuration", "info",
        "Somebody chose which optional notices they get, by a page or by the link of a mail.";
    LOSS_ACCEPTANCE_ORDERED = "sealog.loss_acceptance_ordered", "configuration", "critical",
        "An operator ordered that a chain go on without its lost events; the acceptance is an event of that chain.";
    MAIL_RETRIED = "sealog.mail_retried", "configuration", "info",
        "An operator had a mail on behalf of the organisation tried again.";
    MAIL_GIVEN_UP = "sealog.mail_given_up", "configuration", "warning",
        "An operator gave up a mail on behalf of the organisation.";
    JOB_CANCELLED = "sealog.job_cancelled", "configuration", "warning", "An operator cancelled a job of the organisation.";
    STORE_RESTORED = "sealog.store_restored", "configuration", "critical",
        "The store was restored from a backup; if that is older than what the store is known to have held, the lost events are named.";
    TEST_EVENTS_DROPPED = "sealog.test_events_dropped", "configuration", "info",
        "Old test events are dropped for their age: of each chain all events up to the one that is named.";
    BASELINE = "sealog.baseline", "configuration", "warning",
        "What the store held without a record of it after it was restored.";
    CHAIN_BROKEN = "sealog.chain_broken", "configuration", "critical", "A verification found a chain broken.";
}

/// By its name.
pub fn find(action: &str) -> Option<&'static SystemAction> {
    ALL.iter().find(|known| known.action == action).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealog_core::catalog::Catalog;

    #[test]
    fn every_action_is_reserved_and_has_words_of_the_catalog() {
        for known in ALL {
            assert!(known.action.starts_with("sealog."), "{}", known.action);
            assert!(Catalog::builtin().check_custom_name(known.action).is_err(), "{}", known.action);
            let entries = &Catalog::builtin().entries;
            assert!(entries.iter().any(|entry| entry.category == known.category), "{}", known.category);
            assert!(entries.iter().any(|entry| entry.severity == known.severity), "{}", known.severity);
            assert_eq!(find(known.action), Some(*known));
            assert_eq!(ALL.iter().filter(|other| other.action == known.action).count(), 1);
        }
    }
}
