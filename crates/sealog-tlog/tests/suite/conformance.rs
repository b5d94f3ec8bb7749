//! One suite for every place of a tree: the rules of [`crate::rules`], in memory over the reference store, in
//! the data directory of an embedded store, and in PostgreSQL.

use sealog_testing::{MORNING_MS, StillWorld};

use crate::home::{InDirectory, InMemory, OnPostgres};

/// Runs each rule on a store without events.
macro_rules! conformance {
    ($($rule:ident)*) => {
        conformance! { in_memory, InMemory, $($rule)* }
        conformance! { in_a_directory, InDirectory, $($rule)* }
        conformance! { on_postgres, OnPostgres, $($rule)* }
    };
    ($place:ident, $home:ident, $($rule:ident)*) => {
        mod $place {
            $(#[test] fn $rule() {
                // Keys of salts have to differ.
                let world = super::StillWorld::random_at(super::MORNING_MS);
                crate::rules::$rule(&mut super::$home::new(world));
            })*
        }
    };
}

conformance! {
    every_live_event_is_a_leaf_and_no_test_event_is
    proofs_and_tiles_are_those_of_the_tree_at_every_size
    the_worked_example_has_the_root_that_was_computed_elsewhere
    changed_heads_come_once_in_pages_and_again_after_a_rebuild
    trees_from_the_feed_equal_trees_from_a_rebuild
    a_chain_keeps_its_root_key_and_gets_it_before_its_first_leaf
    a_damaged_record_stops_its_tree_alone_until_it_is_repaired
    an_event_that_cannot_be_read_stops_its_tree_alone
    an_accepted_loss_cuts_the_tree_and_later_events_get_fresh_salts
    other_events_without_an_accepted_loss_stop_the_tree_and_cut_nothing
    a_chain_that_is_shorter_than_its_tree_stops_it_and_cuts_nothing
    ten_thousand_chains_with_an_event_each_are_one_pass
    the_worst_events_have_leaves
    a_node_that_lost_its_turn_changes_nothing
    what_a_tree_does_not_have_is_refused
}
