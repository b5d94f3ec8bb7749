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
        "The name, plan, contact, trial, billing or rate of the organisation was changed.";
    TENANT_CLOSED = "sealog.tenant_closed", "configuration", "critical",
        "The organisation was closed at the end of its contract: its keys stop working and its memberships end; its events stay.";
    TENANT_EXPORTED = "sealog.tenant_exported", "data_access", "critical",
        "A command on the server's host exported everything of the organisation.";
    PROJECT_CREATED = "sealog.project_created", "configuration", "info", "A project was created.";
    PROJECT_CHANGED = "sealog.project_changed", "configuration", "info", "The name or rate of a project was changed.";
    FRAMEWORKS_CHANGED = "sealog.frameworks_changed", "configuration", "warning",
        "Frameworks were enabled or disabled for a project.";
    KEY_CREATED = "sealog.key_created", "api_key", "warning", "An API key was created.";
    KEY_REVOKED = "sealog.key_revoked", "api_key", "warning", "An API key was revoked.";
    KEY_ROLLED = "sealog.key_rolled", "api_key", "warning",
        "An API key replaced another, which expires at the given time.";
    MONITOR_TOKEN_CREATED = "sealog.monitor_token_created", "api_key", "warning",
        "A monitor token was created: it reads proofs of one chain and no events.";
    MONITOR_TOKEN_REVOKED = "sealog.monitor_token_revoked", "api_key", "warning", "A monitor token was revoked.";
    KEY_POLICY_CHANGED = "sealog.key_policy_changed", "api_key", "warning",
        "The maximum lifetime of new API keys was set or removed.";
    SETTINGS_CHANGED = "sealog.settings_changed", "configuration", "warning",
        "The security settings, time zone or privacy text of the organisation were changed.";
    ACTION_RETIRED = "sealog.action_retired", "configuration", "warning",
        "A custom action was retired; new events with it are rejected.";
    ACTION_CREATED = "sealog.action_created", "configuration", "info", "A custom action was registered.";
    MEMBER_ADDED = "sealog.member_added", "access_control", "warning", "A member joined.";
    MEMBER_CHANGED = "sealog.member_changed", "access_control", "warning",
        "The role, grants or end of a membership was changed.";
    MEMBER_INVITED = "sealog.member_invited", "access_control", "warning", "A person was invited to join.";
    INVITATION_WITHDRAWN = "sealog.invitation_withdrawn", "access_control", "info", "An invitation was cancelled.";
    ACCOUNT_CLAIMED = "sealog.account_claimed", "access_control", "warning",
        "The owner account of the first run was claimed.";
    SIGNED_IN = "sealog.signed_in", "auth", "info", "A member signed in to the dashboard.";
    SIGN_IN_FAILED = "sealog.sign_in_failed", "auth", "warning",
        "Sign-ins of a member failed with a wrong password or code; at most one event a minute, with counts.";
    PASSWORD_CHANGED = "sealog.password_changed", "auth", "warning",
        "A member changed the password, or set a new one with a link.";
    RESET_LINK_MADE = "sealog.reset_link_made", "auth", "warning",
        "A command on the server's host created a link that sets a member's password or claims the first owner account.";
    AUTHENTICATOR_CHANGED = "sealog.authenticator_changed", "auth", "warning",
        "A member set up or removed an authenticator, or created new recovery codes.";
    EVENTS_VIEWED = "sealog.events_viewed", "data_access", "info", "An auditor viewed a list of events.";
    EVENT_VIEWED = "sealog.event_viewed", "data_access", "info", "An auditor viewed an event.";
    PAGE_VIEWED = "sealog.page_viewed", "data_access", "info",
        "An auditor viewed figures, keys, verifications, exports, cases, shared views or the system log.";
    VIEW_SHARED = "sealog.view_shared", "configuration", "info",
        "A saved view was shared with everyone who can see a project, or a shared view was changed.";
    VIEW_UNSHARED = "sealog.view_unshared", "configuration", "info", "A shared view was unshared or removed.";
    EXPORT_CREATED = "sealog.export_created", "data_access", "warning", "An export of events was created.";
    EXPORT_DOWNLOADED = "sealog.export_downloaded", "data_access", "warning",
        "An export of events was downloaded.";
    EXPORT_REMOVED = "sealog.export_removed", "data_access", "info",
        "A downloaded export was removed to make space for a newer one.";
    CASE_OPENED = "sealog.case_opened", "gdpr", "info", "A case was opened for a request of a data subject.";
    CASE_MOVED = "sealog.case_moved", "gdpr", "info",
        "A case changed its state; the note is in the case, its salted digest here.";
    CASE_CHANGED = "sealog.case_changed", "gdpr", "info",
        "Fields of a case were changed; the event has their names, never their values.";
    CASE_HOLIDAYS_CHANGED = "sealog.case_holidays_changed", "configuration", "info",
        "The holidays for statutory deadlines were changed.";
    CASE_REGISTER_DOWNLOADED = "sealog.case_register_downloaded", "data_access", "warning",
        "The register of cases was downloaded.";
    VERIFICATION_STARTED = "sealog.verification_started", "configuration", "info",
        "The verification of a chain was started.";
    VERIFICATION_CANCELLED = "sealog.verification_cancelled", "configuration", "info",
        "The verification of a chain was cancelled.";
    VERIFICATION_ENDED = "sealog.verification_ended", "configuration", "info",
        "A verification found a chain valid.";
    CASE_SEARCH_STARTED = "sealog.case_search_started", "data_access", "warning",
        "A search for the events of a data subject was started.";
    CASE_SEARCH_STOPPED = "sealog.case_search_stopped", "data_access", "info",
        "The search of a case was stopped.";
    CASE_SEARCH_RESUMED = "sealog.case_search_resumed", "data_access", "info",
        "The search of a case was resumed.";
    CASE_SEARCH_ENDED = "sealog.case_search_ended", "data_access", "info",
        "The search of a case finished; the case keeps its results.";
    CASE_REVIEWED = "sealog.case_reviewed", "data_access", "info",
        "Found events were reviewed; the event has the number and the decision.";
    CASE_PACKAGE_STARTED = "sealog.case_package_started", "data_access", "warning",
        "The package of a case was requested.";
    CASE_PACKAGE_BUILT = "sealog.case_package_built", "data_access", "info",
        "The package of a case was built, with this digest.";
    CASE_PACKAGE_DOWNLOADED = "sealog.case_package_downloaded", "data_access", "warning",
        "The package of a case was downloaded.";
    CASE_PACKAGE_DROPPED = "sealog.case_package_dropped", "data_access", "info",
        "The package of a case expired and was removed; its digest is kept.";
    CASE_LETTER_CHANGED = "sealog.case_letter_changed", "data_access", "info",
        "A letter of a case was edited.";
    NOTICES_CHOSEN = "sealog.notices_chosen", "configuration", "info",
        "A member changed which optional notices to get, on a page or with the link in a mail.";
    LOSS_ACCEPTANCE_ORDERED = "sealog.loss_acceptance_ordered", "configuration", "critical",
        "An operator accepted the lost events of a chain; the acceptance is an event of that chain.";
    MAIL_RETRIED = "sealog.mail_retried", "configuration", "info",
        "An operator retried a mail for the organisation.";
    MAIL_GIVEN_UP = "sealog.mail_given_up", "configuration", "warning",
        "An operator cancelled a mail for the organisation.";
    JOB_CANCELLED = "sealog.job_cancelled", "configuration", "warning", "An operator cancelled a job of the organisation.";
    STORE_RESTORED = "sealog.store_restored", "configuration", "critical",
        "The store was restored from a backup; if the backup was missing acknowledged events, the event names them.";
    STORE_DIVERGED = "sealog.store_diverged", "configuration", "critical",
        "A server that was replaced had acknowledged events that are not in these chains; the named file has them.";
    TEST_EVENTS_DROPPED = "sealog.test_events_dropped", "configuration", "info",
        "Old test events are deleted: in each chain, all events up to the named one.";
    BASELINE = "sealog.baseline", "configuration", "warning",
        "State that a restored store held without a record.";
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
