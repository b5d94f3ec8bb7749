//! One suite for every driver: what the contracts of the entities say, rule by rule, on SQLite in memory and
//! in a file and on PostgreSQL.

mod action;
mod attempt;
mod authenticator;
mod case;
mod case_package;
mod case_search;
mod closed;
mod common;
mod device;
mod ending;
mod epoch;
mod exports;
mod failure;
mod job;
mod key;
mod link;
mod lists;
mod membership;
mod monitor_token;
mod muted_notice;
mod ops;
mod outbox;
mod outbox_desk;
mod pending;
mod person;
mod project;
mod saved_view;
mod session;
mod settings;
mod snapshot;
mod system_project;
mod tenant;
mod tenant_room;
mod version;

use sealog_control::Control;
use sealog_store::embedded::EmbeddedStore;
use sealog_store::postgres::PostgresStore;
use sealog_testing::{StillWorld, on_postgres, postgres, small};

/// Runs each rule on empty control data.
macro_rules! conformance {
    ($($rules:ident: { $($rule:ident)* })*) => {
        mod in_memory {
            $($(#[test] fn $rule() {
                super::$rules::$rule(&super::Control::in_memory());
            })*)*
        }
        mod in_a_file {
            $($(#[test] fn $rule() {
                let dir = tempfile::tempdir().unwrap();
                let store = super::EmbeddedStore::open(dir.path(), &super::small(&super::StillWorld::new())).unwrap();
                super::$rules::$rule(&super::Control::embedded(&store).unwrap());
            })*)*
        }
        mod on_postgresql {
            $($(#[test] fn $rule() {
                let database = super::postgres::cluster().database();
                let options = super::on_postgres(&super::StillWorld::new());
                let store = super::PostgresStore::open(&database.url(), &options).unwrap();
                super::$rules::$rule(&super::Control::on_postgres(&store).unwrap());
            })*)*
        }
    };
}

conformance! {
    tenant: {
        the_first_tenant_comes_with_its_keys_in_one_step_and_only_into_an_empty_store
        a_created_tenant_reads_back_with_its_plan_and_billing
        a_change_leaves_other_fields_alone_and_null_clears
        tenants_are_found_by_a_part_of_their_name_and_pages_join
    }
    tenant_room: {
        whatever_adds_to_a_tenant_without_room_is_undone_and_what_ends_something_is_not
        a_tenant_takes_its_rows_and_their_texts_and_no_more_than_it_may
    }
    project: {
        a_project_needs_its_tenant
        frameworks_that_were_disabled_stay_known_as_ever_enabled
        the_history_of_frameworks_is_kept
        changes_of_different_frameworks_at_the_same_time_are_all_kept
        concurrent_changes_are_all_kept
        projects_are_found_by_their_ids_in_their_tenant
    }
    key: {
        access_finds_a_key_by_its_digest_with_project_tenant_and_actions
        access_shows_revoked_and_expired_keys
        revoking_twice_keeps_the_first_time
        a_keys_last_use_never_goes_back
        requests_of_a_key_are_counted_for_a_day
        a_name_is_taken_while_a_key_of_the_project_works
        keys_of_a_tenant_are_listed_newest_first_and_pages_join
        a_key_is_found_by_its_id_with_its_tenant
        a_rolled_key_works_on_for_a_while_and_the_new_one_at_once
        keys_that_end_soon_are_those_that_work_and_the_next_comes_first
    }
    monitor_token: {
        a_token_is_found_by_its_digest_and_never_as_a_key
        a_token_is_for_a_project_of_its_tenant_or_the_system_chain
        a_chain_has_so_many_tokens_that_work_and_a_name_once
        tokens_made_at_the_same_time_are_never_too_many
        a_revoked_token_keeps_the_first_time_and_raises_its_tenants_version
        a_tokens_last_use_never_goes_back
        tokens_are_listed_by_project_and_by_tenant_and_pages_join
    }
    action: {
        actions_are_unique_in_their_tenant
        a_retired_action_is_gone_from_access_stays_known_and_its_name_is_free
    }
    lists: {
        what_does_not_exist_cannot_be_changed
        lists_are_in_order_of_creation_and_pages_join
        behind_an_id_that_is_not_in_the_list_there_is_nothing
        an_id_is_taken_once
    }
    person: {
        an_email_is_found_in_any_case
        a_password_by_a_link_shows_the_address_and_a_changed_one_leaves_it_as_it_was
        a_changed_password_ends_all_sessions_but_one_and_is_changed_from_the_one_that_was_shown
    }
    membership: {
        an_address_that_exists_adds_a_membership_and_changes_nothing_of_the_person
        an_address_is_a_member_of_a_tenant_once
        grants_read_back_and_a_change_leaves_the_others_alone
        a_tenant_keeps_an_owner_whose_membership_does_not_end
        of_two_owners_who_leave_at_once_one_stays
        a_role_is_given_and_taken_by_those_who_may
        sessions_end_with_the_last_membership
    }
    session: {
        sessions_end_and_expire
        all_sessions_of_a_person_end_together
        sessions_that_are_over_are_removed_when_another_begins
        a_session_that_nobody_uses_ends_before_its_time
        a_new_session_takes_the_place_of_the_one_before_it
        a_person_ends_one_session_or_all_others_and_never_anothers
        a_session_begins_with_the_password_that_the_person_has
        a_person_has_at_most_twenty_sessions_and_the_one_that_was_unused_for_longest_ends
        a_whole_session_begins_with_a_code_once_there_is_an_authenticator
        sessions_without_their_code_end_no_whole_one
    }
    authenticator: {
        an_authenticator_counts_from_its_first_code_on
        a_code_of_a_time_step_works_once_and_never_an_older_one
        of_many_that_use_one_code_at_once_one_has_used_it
        a_recovery_code_works_once
        a_removed_authenticator_takes_its_recovery_codes_along
        those_who_have_an_authenticator_are_found_together
    }
    failure: {
        failures_are_counted_until_they_are_recorded_together
        failures_at_the_same_time_are_all_counted
    }
    saved_view: {
        a_person_has_so_many_views_in_a_tenant_and_one_of_a_name
        a_shared_view_is_seen_in_its_project_and_changed_by_its_owner
        so_many_views_are_shared_in_a_project
        a_shared_view_is_removed_by_its_owner_or_for_its_project
    }
    attempt: {
        attempts_are_counted_by_subject_until_their_window_is_over
        attempts_at_the_same_time_are_all_counted
        attempts_that_are_over_are_cleaned_up_by_many_at_once_and_none_fails
    }
    link: {
        a_link_is_found_by_its_secret_until_it_is_over
        a_link_and_its_records_are_made_together_or_not_at_all
        a_newer_link_takes_the_place_of_an_older_one_of_its_kind
        the_last_three_links_to_a_new_password_work_until_one_is_used
        a_claim_sets_address_and_password_once
        a_claim_with_an_address_that_somebody_has_changes_nothing
        a_reset_sets_the_password_ends_all_sessions_and_leaves_the_authenticator
        a_mailed_link_has_the_secret_that_its_mail_left_with
        an_invitation_makes_an_account_for_an_address_that_has_none
        an_invitation_that_was_mailed_shows_that_the_address_is_theirs
        an_invitation_to_somebody_with_an_account_is_accepted_by_that_person_alone
        an_account_that_was_never_shown_to_have_its_address_joins_no_second_tenant
        an_invitation_that_was_withdrawn_opens_nothing
        an_invitation_is_replaced_by_those_alone_who_may_give_its_role
        an_invitation_opens_nothing_once_the_membership_of_its_sender_has_ended
        invitations_go_with_the_right_of_their_sender_to_send_them
        of_many_that_use_a_link_at_once_one_has_used_it
        a_tenant_has_so_many_open_invitations_and_one_for_an_address
        a_new_password_and_the_records_of_it_are_one_change
    }
    outbox: {
        a_notice_with_the_same_key_is_queued_once
        a_failed_notice_is_due_again_at_its_time
        a_notice_is_claimed_by_one_and_due_again_when_the_claim_is_over
        a_sent_notice_is_not_due_and_its_key_stays_taken
        a_notice_needs_no_tenant_and_its_key_is_any_text
        address_and_parameters_of_a_notice_are_gone_90_days_after_it_was_sent
        a_secret_is_known_by_its_digest_from_the_attempt_that_sends_it_on_and_is_spent_once
        a_notice_that_was_given_up_is_not_due_keeps_its_cause_and_its_key_stays_taken
        a_notice_that_was_given_up_loses_its_text_after_90_days
        the_notices_for_a_person_are_listed_newest_first_and_nobody_elses
    }
    device: {
        a_browser_is_new_once_for_each_person_and_the_first_one_gives_no_notice
        the_browser_that_was_not_used_for_the_longest_is_forgotten_when_there_are_too_many
    }
    muted_notice: {
        what_somebody_does_not_want_is_kept_for_one_person_in_one_tenant
    }
    ending: {
        keys_are_found_by_their_end_in_its_order_unless_they_are_revoked
        trials_are_found_by_their_end_where_nothing_is_billed
        auditors_are_found_by_the_end_of_their_membership
        members_are_found_by_their_roles_while_they_are_members
    }
    epoch: {
        a_promotion_raises_the_epoch_above_everything_that_the_store_knows_of
        an_epoch_that_a_peer_has_told_is_kept_and_never_lowered
        the_log_that_a_store_had_is_known_until_there_is_another
    }
    closed: {
        a_closed_tenants_keys_open_nothing_at_once_and_the_next_tenants_do
        nothing_gives_a_closed_tenant_a_key_or_a_member_and_its_last_owner_can_go
        a_tenant_with_open_cases_is_closed_only_by_those_who_say_so
    }
    settings: {
        settings_are_set_changed_and_taken_away_for_one_tenant
        a_setting_that_is_no_json_is_refused
        several_settings_are_set_at_once_or_not_at_all_and_found_for_a_member
    }
    job: {
        a_job_is_claimed_by_one_and_due_again_when_its_lease_is_over
        a_job_ends_once_and_says_why_it_failed
        of_many_that_claim_a_job_at_once_one_has_it
        a_tenant_has_so_many_jobs_of_a_kind_that_have_not_ended
        a_job_with_an_id_of_its_own_is_made_once
        old_jobs_that_nobody_asked_for_are_forgotten_in_steps
        a_cancelled_job_is_nobodys_and_keeps_its_position
        a_job_ends_with_its_result_and_its_record
        jobs_about_one_thing_are_listed_newest_first
        jobs_of_all_tenants_are_listed_newest_first_and_pages_join
    }
    exports: {
        an_export_reads_back_and_its_record_waits
        what_a_complete_download_came_to_is_noted_once
        exports_of_a_project_and_mode_are_listed_newest_first
        the_oldest_export_that_was_downloaded_gives_way_to_one_too_many
    }
    case: {
        a_case_reads_back_and_is_numbered_in_its_tenant
        a_write_over_a_revision_that_is_not_the_last_changes_nothing
        of_many_writes_over_one_revision_one_is_kept
        cases_are_listed_by_what_they_are_asked_for
        events_of_a_case_wait_in_their_order_and_end_once
    }
    case_search: {
        a_search_keeps_what_it_finds_with_how_far_it_has_got_and_goes_on_in_another_job
        a_search_starts_with_its_job_or_not_at_all
        what_was_decided_stays_decided_in_the_next_search_and_earlier_events_go
        two_who_decide_do_not_overwrite_each_other
        what_has_to_be_read_is_left_out_where_many_are_decided_at_once
        events_outside_of_grants_are_in_no_list_and_no_number
        nothing_is_decided_in_another_state_or_about_an_earlier_search
        masks_are_kept_with_what_they_say_of_values_for_the_next_search_too
        what_is_decided_while_the_next_search_runs_is_carried_over_when_that_takes_its_place
        a_mask_of_thirty_thousand_values_is_one_change_that_others_wait_for_once
    }
    case_package: {
        a_package_waits_for_identity_approval_and_decisions
        the_first_attempt_that_is_finished_is_the_package_and_the_others_are_removed
        what_has_expired_is_dropped_in_steps_and_its_record_stays
        a_package_takes_of_the_room_of_its_tenant_until_it_expires
        a_letter_is_kept_over_the_revision_that_was_seen
    }
    pending: {
        a_record_is_kept_with_its_change_and_not_without_it
        records_are_in_the_order_of_the_changes_until_they_are_removed
        records_of_what_changed_nothing_wait_with_the_others
        a_record_tells_of_the_state_that_its_change_has_found
    }
    outbox_desk: {
        notices_are_listed_by_their_state_newest_first_and_pages_join
        a_notice_is_given_up_and_tried_again_by_hand_and_the_tenants_records_wait
    }
    ops: {
        a_link_sets_the_password_of_an_operator_once_and_until_it_is_over
        an_address_is_one_operators_until_that_one_is_removed
        an_operator_who_has_never_shown_a_code_gets_another_link_and_one_who_has_does_not
        a_password_alone_begins_no_whole_session_of_an_operator
        a_code_of_an_operator_works_once_for_the_session_that_asked
        an_authenticator_of_an_operator_is_replaced_until_its_first_code
        sessions_of_an_operator_end_with_time_and_idleness
        a_removed_operator_has_no_session_no_password_and_no_way_back
        an_operator_and_a_person_with_the_same_token_have_nothing_in_common
        browsers_of_an_operator_are_known_until_the_operator_is_removed
    }
    system_project: {
        a_tenant_has_one_system_project_that_is_made_once
        of_many_that_ask_at_once_all_get_the_same_system_project
        a_system_project_is_told_by_its_id_and_no_other_project_has_one
        no_list_shows_a_system_project_and_nothing_can_change_it
    }
    version: {
        every_change_of_access_raises_the_version_of_its_tenant_and_of_no_other
    }
    snapshot: {
        a_snapshot_that_was_put_in_comes_out_as_it_was
    }
}
