//! One suite for every store: what the contract in `src/lib.rs` says, rule by rule.

mod counts;
mod feed;
mod loss;
mod retention;
mod rules;
mod system_chain;

use std::path::Path;
use std::sync::Arc;

use loss::Lossy;
use sealog_core::id::ChainId;
use sealog_store::embedded::EmbeddedStore;
use sealog_store::feed::{Scope, Start};
use sealog_store::postgres::{Options, PostgresStore};
use sealog_store::reference::ReferenceStore;
use sealog_store::{Store, StoreError};
use sealog_testing::{SlowWorld, StillWorld, on_postgres, postgres, small, wait};

/// Each append under the lock of its chain. With a database that answers in time this is the first one alone.
fn under_the_lock(world: &Arc<StillWorld>) -> Options {
    Options { world: SlowWorld::of(world), ..on_postgres(world) }
}

/// Runs each rule on a fresh store.
macro_rules! conformance {
    ($($rules:ident: { $($rule:ident)* })*) => {
        mod embedded {
            $($(#[test] fn $rule() {
                let world = super::StillWorld::new();
                let dir = tempfile::tempdir().unwrap();
                let store = super::EmbeddedStore::open(dir.path(), &super::small(&world)).unwrap();
                assert_eq!(store.findings(), []);
                super::$rules::$rule(&store, &world);
            })*)*
        }
        mod on_postgres {
            $($(#[test] fn $rule() {
                let world = super::StillWorld::new();
                let database = super::postgres::cluster().database();
                let store = super::PostgresStore::open(&database.url(), &super::on_postgres(&world)).unwrap();
                super::$rules::$rule(&store, &world);
            })*)*
        }
        mod on_postgres_under_the_lock {
            $($(#[test] fn $rule() {
                let world = super::StillWorld::new();
                let database = super::postgres::cluster().database();
                let options = super::under_the_lock(&world);
                let store = super::PostgresStore::open(&database.url(), &options).unwrap();
                super::$rules::$rule(&store, &world);
            })*)*
        }
        mod on_citus {
            $(mod $rules {
                use crate::conformance::*;
                $(#[test]
                #[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
                fn $rule() {
                    let (world, database) = (StillWorld::new(), lent_citus_database());
                    let store = PostgresStore::open(&database.url(), &on_postgres(&world)).unwrap();
                    $rules::$rule(&store, &world);
                })*
            })*
        }
        mod reference {
            $($(#[test] fn $rule() {
                let world = super::StillWorld::new();
                super::$rules::$rule(&super::ReferenceStore::new(super::Arc::clone(&world) as _), &world);
            })*)*
        }
    };
}

/// One that others have used before; its URL leads to the workers.
pub(crate) fn lent_citus_database() -> postgres::Lent {
    static LENDER: postgres::Lender = postgres::Lender::new();
    let tables = sealog_store::postgres::DISTRIBUTED_TABLES.map(|table| format!("sealog.{table}"));
    LENDER.lend(|| postgres::Database::distributed().by_workers(), &format!("TRUNCATE {}", tables.join(", ")))
}

conformance! {
    rules: {
        the_first_event_has_seq_1_and_64_zeros_before_it
        seqs_have_no_gaps_and_each_event_names_the_one_before
        an_event_can_be_read_at_once_with_every_field_it_was_sent_with
        a_batch_is_contiguous_and_its_ids_are_in_order
        a_request_has_1_to_100_events
        chains_of_projects_tenants_and_modes_are_apart
        another_chains_id_is_not_found
        ids_and_times_increase_when_the_clock_steps_back
        lists_are_newest_first_and_pages_join_without_gap_or_overlap
        a_page_grows_neither_by_later_events_nor_in_its_past
        filters_match_exactly_and_in_any_combination
        members_of_metadata_match_exactly_and_in_any_combination
        dates_are_inclusive_days
        a_list_stops_at_its_bytes_and_goes_on_where_it_stopped
        a_range_has_every_event_once_however_it_is_cut
        windows_verify_against_the_event_before_them
        verifying_nothing_is_valid
        same_key_and_body_is_a_replay_of_the_first_answer
        same_key_with_another_body_is_a_conflict
        a_key_is_in_flight_until_its_request_ends
        a_reservation_that_is_dropped_frees_the_key
        keys_belong_to_one_chain
        a_key_that_was_reserved_for_another_chain_is_refused
        a_key_is_free_again_after_24_hours
        a_replay_of_a_batch_has_all_its_ids
        usage_counts_live_events_by_tenant_and_month
        heads_name_every_chain_with_events
        import_takes_a_chain_as_it_is
        import_refuses_what_does_not_continue_the_chain
        keys_are_listed_in_the_order_of_their_events
        an_imported_key_is_replayed_as_where_it_was_used_and_for_as_long
        an_append_beside_an_import_with_its_key_fails_nobody
        import_refuses_a_key_of_other_events
        large_events_come_back_whole
        concurrent_appends_form_one_line
    }
    feed: {
        from_the_beginning_every_chain_that_has_events_is_announced
        from_now_only_what_comes_later_is_announced
        whoever_waits_is_woken_by_an_append
        many_changes_of_a_chain_are_one
        a_batch_is_bounded_and_the_rest_comes_with_the_next_ones
        a_scope_is_everything_or_a_tenant_or_a_chain
        from_any_position_what_was_not_announced_before_it_is_announced
        a_position_is_for_its_store_and_its_scope_and_nothing_else_is_one
        whoever_stops_waiting_and_asks_again_has_missed_nothing
        imported_events_are_announced
        under_load_nothing_is_announced_too_early_or_left_out
        catching_up_announces_what_is_durable_and_then_says_that_there_is_no_more
        catching_up_ends_while_events_arrive_and_leaves_nothing_out
        catching_up_goes_on_in_the_middle_of_what_was_announced_and_after_a_restart_of_the_reader
    }
    retention: {
        old_test_events_are_dropped_oldest_first_and_the_chain_begins_behind_them
        a_chain_goes_on_behind_what_was_dropped
        what_is_young_is_kept
        a_follower_hears_of_what_is_kept_from_any_position
    }
    counts: {
        counts_are_what_looking_at_every_event_counts
        counts_are_of_the_days_that_were_asked_for_and_of_no_more_than_a_year
        a_day_counts_so_many_actions_apart_and_the_others_together
        distinct_actors_are_estimated_within_a_few_percent
        imported_events_are_counted
    }
}

/// Runs each rule of a loss on a fresh store that can lose events.
macro_rules! losses {
    ($($rules:ident: { $($rule:ident)* })*) => {
        mod embedded_loses {
            $($(#[test] fn $rule() {
                let world = super::StillWorld::new();
                super::$rules::$rule(&mut super::LossyEmbedded::new(&world), &world);
            })*)*
        }
        mod postgres_loses {
            $($(#[test] fn $rule() {
                let world = super::StillWorld::new();
                let database = super::postgres::cluster().database();
                super::$rules::$rule(&mut super::LossyPostgres::on(database, &world), &world);
            })*)*
        }
        mod on_citus_loses {
            $(mod $rules {
                use crate::conformance::*;
                $(#[test]
                #[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
                fn $rule() {
                    let world = StillWorld::new();
                    $rules::$rule(&mut LossyPostgres::on(lent_citus_database(), &world), &world);
                })*
            })*
        }
        mod reference_loses {
            $($(#[test] fn $rule() {
                let world = super::StillWorld::new();
                super::$rules::$rule(&mut super::ReferenceStore::new(super::Arc::clone(&world) as _), &world);
            })*)*
        }
    };
}

losses! {
    feed: {
        a_position_outlives_a_restart
        an_accepted_loss_is_announced_as_a_head_that_has_gone_back
    }
    counts: {
        counts_outlive_a_restart
        events_that_are_lost_are_not_counted_any_more
    }
    loss: {
        an_accepted_loss_is_the_next_event_of_a_chain_that_goes_on_shorter
        a_loss_is_accepted_once
        a_chain_that_has_lost_nothing_has_nothing_to_accept
        a_loss_is_accepted_with_a_reason_or_not_at_all
        a_chain_can_lose_again_and_so_can_its_acceptance
        a_chain_that_is_lost_as_a_whole_begins_with_its_acceptance
        the_key_of_a_lost_request_is_free_once_the_loss_is_accepted
        losses_of_several_chains_are_accepted_one_by_one
        a_chain_that_lacks_an_event_it_is_known_to_have_had_takes_none_until_that_is_accepted
        a_store_that_was_rolled_back_takes_no_events_until_that_is_taken_back
    }
    system_chain: {
        a_system_chain_is_sealed_read_verified_and_followed_like_any_other
        a_system_chain_counts_toward_no_usage
    }
}

/// A follower that waits is told when its store closes, and so is one that begins to wait then.
fn closes_while_somebody_waits<S: Store>(store: &S, close: impl Fn(&S) + Sync) {
    let mut follower = feed::follow(store, Scope::Everything, Start::Now);
    let outcome = std::thread::scope(|threads| {
        let waiting = threads.spawn(|| wait(follower.next(1)));
        close(store);
        waiting.join().unwrap()
    });
    assert_eq!(outcome, Err(StoreError::Closing));
    assert_eq!(wait(follower.next(1)), Err(StoreError::Closing));
}

#[test]
fn followers_end_when_their_store_closes() {
    let world = StillWorld::new();
    let dir = tempfile::tempdir().unwrap();
    let embedded = EmbeddedStore::open(dir.path(), &small(&world)).unwrap();
    closes_while_somebody_waits(&embedded, EmbeddedStore::close);
    let database = postgres::cluster().database();
    let on_postgres = PostgresStore::open(&database.url(), &on_postgres(&world)).unwrap();
    closes_while_somebody_waits(&on_postgres, PostgresStore::close);
    closes_while_somebody_waits(&ReferenceStore::new(Arc::clone(&world) as _), ReferenceStore::close);
}

impl Lossy for ReferenceStore {
    fn store(&self) -> &dyn Store {
        self
    }

    fn lose_from(&mut self, chain: ChainId, chain_seq: u64) {
        ReferenceStore::lose_from(self, chain, chain_seq);
    }

    fn restart(&mut self) {}
}

struct LossyEmbedded {
    dir: tempfile::TempDir,
    world: Arc<StillWorld>,
    store: Option<EmbeddedStore>,
}

impl LossyEmbedded {
    fn new(world: &Arc<StillWorld>) -> LossyEmbedded {
        let dir = tempfile::tempdir().unwrap();
        let store = Some(EmbeddedStore::open(dir.path(), &small(world)).unwrap());
        LossyEmbedded { dir, world: Arc::clone(world), store }
    }
}

impl Lossy for LossyEmbedded {
    fn store(&self) -> &dyn Store {
        self.store.as_ref().unwrap()
    }

    /// Overwrites the frames of these events. Those of other chains between them stay.
    fn lose_from(&mut self, chain: ChainId, chain_seq: u64) {
        self.store = None;
        let dir = self.dir.path().join(chain.mode.as_str());
        let owner = [chain.tenant_id.0.0, chain.project_id.0.0].concat();
        for path in files(&dir, "log") {
            let mut bytes = std::fs::read(&path).unwrap();
            let mut at = 128;
            while at + 88 <= bytes.len() {
                // What was lost before is passed over; a frame names its own place.
                if &bytes[at..at + 4] != b"SLFR" || bytes[at + 24..at + 32] != (at as u64).to_le_bytes() {
                    at += 1;
                    continue;
                }
                let length = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
                let first_seq = u64::from_le_bytes(bytes[at + 64..at + 72].try_into().unwrap());
                if bytes[at + 32..at + 64] == owner && first_seq >= chain_seq {
                    bytes[at..at + length].fill(0x5A);
                }
                at += length;
            }
            std::fs::write(&path, &bytes).unwrap();
        }
        // An index speaks for its segment, and would keep the store from looking.
        for path in files(&dir, "idx") {
            std::fs::remove_file(path).unwrap();
        }
        self.restart();
    }

    fn restart(&mut self) {
        self.store = None;
        self.store = Some(EmbeddedStore::open(self.dir.path(), &small(&self.world)).unwrap());
    }
}

fn files(dir: &Path, ending: &str) -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == ending)).collect()
}

struct LossyPostgres<D> {
    // Dropped before its database.
    store: Option<PostgresStore>,
    database: D,
    world: Arc<StillWorld>,
}

impl<D: AsRef<postgres::Database>> LossyPostgres<D> {
    fn on(database: D, world: &Arc<StillWorld>) -> LossyPostgres<D> {
        let store = Some(PostgresStore::open(&database.as_ref().url(), &on_postgres(world)).unwrap());
        LossyPostgres { database, world: Arc::clone(world), store }
    }
}

impl<D: AsRef<postgres::Database>> Lossy for LossyPostgres<D> {
    fn store(&self) -> &dyn Store {
        self.store.as_ref().unwrap()
    }

    fn lose_from(&mut self, chain: ChainId, chain_seq: u64) {
        let ChainId { tenant_id, project_id, mode } = chain;
        self.database.as_ref().sql(&format!(
            "DELETE FROM sealog.events WHERE chain_seq >= {chain_seq} AND chain_id IN (SELECT chain_id FROM sealog.chains \
             WHERE tenant_id = '{tenant_id}' AND project_id = '{project_id}' AND mode = '{}')",
            mode.as_str()
        ));
    }

    fn restart(&mut self) {
        self.store = None;
        self.store =
            Some(PostgresStore::open(&self.database.as_ref().url(), &on_postgres(&self.world)).unwrap());
    }
}
