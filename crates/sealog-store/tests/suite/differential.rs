//! Random operations on a store and on the reference store: every answer must be equal. The store is opened
//! again now and then.

use std::sync::Arc;

use sealog_core::id::{ChainId, Mode, Ulid};
use sealog_core::metadata::FieldIs;
use sealog_core::query::Filter;
use sealog_core::time::Month;
use sealog_store::Store;
use sealog_store::embedded::{EmbeddedStore, Finding, Options};
use sealog_store::postgres::PostgresStore;
use sealog_store::reference::ReferenceStore;
use sealog_testing::*;

/// Where a store is kept while it is closed.
trait Home {
    fn open(&self, world: &Arc<StillWorld>) -> Box<dyn Store>;
}

impl Home for tempfile::TempDir {
    fn open(&self, world: &Arc<StillWorld>) -> Box<dyn Store> {
        // A sync a few hundred thousand times over would measure the disk; power.rs and kill.rs are about
        // syncs.
        let options = Options {
            allow_unsafe_storage: true,
            segment_bytes_first: 256 << 10,
            segment_bytes_max: 512 << 10,
            ..small(world)
        };
        let store = EmbeddedStore::open(self.path(), &options).unwrap();
        // The clock of these tests is set back at random.
        let unexpected = |(_, finding): &(_, Finding)| !matches!(finding, Finding::ClockBehind { .. });
        assert_eq!(store.findings().into_iter().find(unexpected), None);
        Box::new(store)
    }
}

impl Home for postgres::Database {
    fn open(&self, world: &Arc<StillWorld>) -> Box<dyn Store> {
        Box::new(PostgresStore::open(&self.url(), &on_postgres(world)).unwrap())
    }
}

struct Pair {
    home: Box<dyn Home>,
    world: Arc<StillWorld>,
    store: Option<Box<dyn Store>>,
    reference: ReferenceStore,
    ids: Vec<(ChainId, Ulid)>,
    reopened: usize,
}

impl Pair {
    fn new(home: Box<dyn Home>) -> Pair {
        let world = StillWorld::new();
        let reference = ReferenceStore::new(Arc::clone(&world) as _);
        let mut pair = Pair { home, world, store: None, reference, ids: Vec::new(), reopened: 0 };
        pair.reopen();
        pair
    }

    fn store(&self) -> &dyn Store {
        &**self.store.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        drop(self.store.take());
        self.store = Some(self.home.open(&self.world));
        self.reopened += 1;
    }

    fn step(&mut self, dice: &mut Dice) {
        let chains = [live(), chain(1, 2, Mode::Live), chain(1, 1, Mode::Test), chain(2, 1, Mode::Live)];
        let chain = *dice.pick(&chains);
        match dice.below(100) {
            0..30 => {
                let count = if dice.chance(20) { 1 + dice.below(100) } else { 1 + dice.below(3) };
                let drafts: Vec<_> = (0..count).map(|_| any_draft(dice)).collect();
                let receipt = append(self.store(), chain, drafts.clone());
                assert_eq!(receipt, append(&self.reference, chain, drafts));
                self.ids.push((chain, receipt.log_ids[0]));
            }
            30..40 => {
                let key = key(&format!("k{}", dice.below(200)), &format!("b{}", dice.below(2)));
                let drafts = vec![any_draft(dice)];
                let request_id = Ulid(u128::from(dice.roll()));
                let outcome = append_once(self.store(), chain, drafts.clone(), key, request_id);
                assert_eq!(outcome, append_once(&self.reference, chain, drafts, key, request_id));
            }
            40..55 => {
                let Some((of, id)) =
                    self.ids.get(usize::try_from(dice.below(self.ids.len().max(1) as u64)).unwrap()).copied()
                else {
                    return;
                };
                // Sometimes under another chain, sometimes an id that does not exist.
                let chain = if dice.chance(4) { chain } else { of };
                let id = if dice.chance(4) { Ulid(id.0 + u128::from(dice.below(3))) } else { id };
                assert_eq!(get(self.store(), chain, id), get(&self.reference, chain, id));
            }
            55..80 => {
                let filter = any_filter(dice, &self.world);
                let head = wait(self.reference.head(chain)).unwrap().durable.chain_seq;
                let before = if dice.chance(2) { Some(dice.below(head + 10)) } else { None };
                let limit = usize::try_from(1 + dice.below(100)).unwrap();
                let bytes_max = *dice.pick(&[1, 2000, 1 << 20]);
                let found = list_in_pieces(self.store(), chain, &filter, before, limit, bytes_max);
                assert_eq!(
                    found,
                    list_in_pieces(&self.reference, chain, &filter, before, limit, 1 << 20),
                    "{filter:?} below {before:?}"
                );
            }
            80..88 => {
                let head = wait(self.reference.head(chain)).unwrap().durable.chain_seq;
                let from = 1 + dice.below(head + 5);
                let to = from + dice.below(60);
                let bytes_max = *dice.pick(&[1, 5000, 1 << 20]);
                assert_eq!(
                    range(self.store(), chain, from, to, bytes_max),
                    range(&self.reference, chain, from, to, 1 << 20)
                );
                assert_eq!(
                    verify_window(self.store(), chain, from, to),
                    verify_window(&self.reference, chain, from, to)
                );
            }
            88..92 => {
                let month = Month::of(MORNING_MS + dice.below(3) * 30 * 86_400_000);
                let usage = |store: &dyn Store| wait(store.usage(chain.tenant_id, month)).unwrap();
                assert_eq!(usage(self.store()), usage(&self.reference));
                assert_eq!(wait(self.store().heads()).unwrap(), wait(self.reference.heads()).unwrap());
            }
            92..99 => match dice.below(10) {
                0 => self.world.advance(dice.below(6 * 3_600_000)),
                1 => self.world.set(MORNING_MS + dice.below(86_400_000)),
                _ => self.world.advance(dice.below(4)),
            },
            _ => {
                if dice.chance(10) {
                    self.reopen();
                }
            }
        }
    }
}

fn any_draft(dice: &mut Dice) -> sealog_core::event::Draft {
    let (action, actor, resource) = (dice.below(6), dice.below(40) * dice.below(40), dice.below(500));
    let metadata = match dice.below(4) {
        0 => "null".to_owned(),
        1 => "{}".to_owned(),
        2 => format!(r#"{{"n":{}.0e1,"s":"\ud83d"}}"#, dice.below(1000)),
        _ => format!(r#"{{"text":"{}"}}"#, "lorem ".repeat(usize::try_from(dice.below(40)).unwrap())),
    };
    let resource = if dice.chance(8) { "null".to_owned() } else { format!("\"doc/{resource}\"") };
    let actor = if dice.chance(8) { "null".to_owned() } else { format!("\"u{actor}\"") };
    draft(&format!(
        r#"{{"action":"a.{action}","actor_id":{actor},"resource":{resource},"metadata":{metadata},"session_id":"s{action}"}}"#
    ))
}

fn any_filter(dice: &mut Dice, world: &StillWorld) -> Filter {
    use sealog_store::world::World;
    let mut filter = Filter::default();
    if dice.chance(2) {
        filter.action = Some(format!("\"a.{}\"", dice.below(7)));
    }
    if dice.chance(2) {
        filter.actor_id = Some(format!("\"u{}\"", dice.below(40) * dice.below(41)));
    }
    if dice.chance(3) {
        filter.resource = Some(format!("\"doc/{}\"", dice.below(510)));
    }
    if dice.chance(4) {
        filter.fields.push(FieldIs::new("n", &format!("{}.0e1", dice.below(1000))));
    }
    if dice.chance(8) {
        filter.fields.push(FieldIs::new("text", &"lorem ".repeat(usize::try_from(dice.below(40)).unwrap())));
    }
    let span = world.now_ms().saturating_sub(MORNING_MS) + 10;
    if dice.chance(3) {
        filter.from_ms = Some(MORNING_MS + dice.below(span));
    }
    if dice.chance(3) {
        filter.until_ms = Some(MORNING_MS + dice.below(span));
    }
    filter
}

/// Several stores one after the other: the reference store looks at everything for every answer, so it is
/// kept small.
fn compare(test: &str, rounds: usize, operations: usize, home: impl Fn() -> Box<dyn Home>) {
    let seed = seed(test);
    let mut dice = Dice::new(seed);
    let mut reopened = 0;
    for round in 0..rounds {
        let mut pair = Pair::new(home());
        for operation in 0..operations / rounds {
            let state = dice.clone();
            let step = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pair.step(&mut dice)));
            if let Err(panic) = step {
                println!("seed {seed}, round {round}, operation {operation}, {state:?}");
                std::panic::resume_unwind(panic);
            }
        }
        reopened += pair.reopened;
    }
    println!("{operations} operations, {reopened} restarts, all answers equal");
}

#[test]
fn the_embedded_store_answers_as_the_reference_store_does() {
    // In memory: what is compared here are answers.
    compare("the_embedded_store_answers_as_the_reference_store_does", 20, 100_000, || {
        Box::new(tempfile::tempdir_in("/dev/shm").unwrap())
    });
}

#[test]
fn the_postgresql_store_answers_as_the_reference_store_does() {
    compare("the_postgresql_store_answers_as_the_reference_store_does", 4, 6_000, || {
        Box::new(postgres::cluster().database())
    });
}
