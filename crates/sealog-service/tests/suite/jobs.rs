//! Jobs: in pieces, by one node at a time, resumed where they were; on both stores.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealog_control::*;
use sealog_core::id::{TenantId, Uuid};
use sealog_core::plan::Billing;
use sealog_service::Stop;
use sealog_service::jobs::{DEATHS_MAX, LEASE_MS, Pace, Runner, Step, Work};
use sealog_service::records::system_chain::Wake;
use sealog_store::embedded::EmbeddedStore;
use sealog_store::postgres::PostgresStore;
use sealog_store::world::World;
use sealog_store::{BoxFuture, StoreError};
use sealog_testing::*;

const TENANT: TenantId = TenantId(Uuid([1; 16]));

type Hook = Box<dyn Fn(JobId, u8) + Send + Sync>;

/// Counts to its parameter; the position is one byte.
struct Counting {
    log: Mutex<Vec<(JobId, u8)>>,
    at_step: Hook,
    fails: AtomicU64,
    stays: AtomicBool,
}

impl Work for Counting {
    fn kind(&self) -> &'static str {
        "count"
    }

    fn stays(&self) -> bool {
        self.stays.load(Ordering::SeqCst)
    }

    fn step<'a>(&'a self, job: &'a Job, position: &'a [u8]) -> BoxFuture<'a, Result<Step, StoreError>> {
        Box::pin(async move {
            let number = position.first().copied().unwrap_or(0) + 1;
            self.log.lock().unwrap().push((job.id, number));
            (self.at_step)(job.id, number);
            // Somebody who drops it here has lost nothing.
            tokio::task::yield_now().await;
            if self.fails.load(Ordering::SeqCst) > 0 {
                self.fails.fetch_sub(1, Ordering::SeqCst);
                return Err(StoreError::Read("asked for by a test".into()));
            }
            let end: u8 = job.parameters.parse().unwrap();
            let position = vec![number];
            Ok(if number < end { Step::More(position) } else { Step::Done { position, records: vec![] } })
        })
    }
}

struct Node {
    control: Arc<Control>,
    world: Arc<StillWorld>,
    work: Arc<Counting>,
    runner: Runner,
}

/// Keeps its position at every step, and gives way after each.
const EAGER: Pace = Pace { keep_every: Duration::ZERO, slice: Duration::ZERO };

impl Node {
    fn new(control: &Arc<Control>, world: &Arc<StillWorld>, pace: Pace, at_step: Hook) -> Node {
        let work = Arc::new(Counting {
            log: Mutex::default(),
            at_step,
            fails: AtomicU64::new(0),
            stays: AtomicBool::new(false),
        });
        let runner = Runner {
            control: Arc::clone(control),
            world: Arc::clone(world) as _,
            works: vec![Arc::clone(&work) as _],
            wake: Wake::default(),
            records: Wake::default(),
            every: Duration::from_secs(600),
            pace,
        };
        Node { control: Arc::clone(control), world: Arc::clone(world), work, runner }
    }

    fn turn(&self) -> bool {
        block(self.runner.turn(&Stop::new(), &mut None)).unwrap()
    }

    fn numbers(&self, n: u8) -> Vec<u8> {
        let log = self.work.log.lock().unwrap();
        log.iter().filter(|(id, _)| *id == job_id(n)).map(|(_, number)| *number).collect()
    }

    fn job(&self, n: u8) -> Job {
        wait(self.control.job(job_id(n))).unwrap().unwrap()
    }
}

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn job_id(n: u8) -> JobId {
    JobId(Uuid([n; 16]))
}

fn nothing() -> Hook {
    Box::new(|_, _| {})
}

fn furnish(control: &Control) {
    let tenant = NewTenant {
        id: TENANT,
        name: "T".into(),
        plan: "top".into(),
        contact_email: None,
        billing: Billing { trial_ends_at_ms: None, billing_active: true },
        created_at_ms: MORNING_MS,
    };
    wait(control.create_tenant(tenant, vec![])).unwrap();
}

fn queue(control: &Control, n: u8, end: u8) {
    let new = NewJob {
        id: job_id(n),
        kind: "count".into(),
        tenant_id: Some(TENANT),
        person_id: None,
        subject: None,
        parameters: end.to_string(),
        created_at_ms: MORNING_MS,
    };
    wait(control.create_job(new)).unwrap();
}

/// Each rule on both stores.
fn on_both(rule: fn(Arc<Control>, Arc<StillWorld>)) {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), &small(&StillWorld::new())).unwrap();
    let control = Control::embedded(&store).unwrap();
    furnish(&control);
    rule(Arc::new(control), StillWorld::random_at(MORNING_MS));
    let database = postgres::cluster().database();
    let store = PostgresStore::open(&database.url(), &on_postgres(&StillWorld::new())).unwrap();
    let control = Control::on_postgres(&store).unwrap();
    furnish(&control);
    rule(Arc::new(control), StillWorld::random_at(MORNING_MS));
}

#[test]
fn a_job_is_done_in_pieces_to_its_end() {
    on_both(|control, world| {
        let node = Node::new(&control, &world, Pace::default(), nothing());
        assert!(!node.turn(), "there is none");
        queue(&control, 1, 3);
        assert!(node.turn());
        assert_eq!((node.numbers(1), node.job(1).state), (vec![1, 2, 3], JobState::Done));
        assert_eq!(node.job(1).position, Some(vec![3]));
        assert!(!node.turn());
    });
}

#[test]
fn a_node_leaves_a_job_alone_that_another_one_has() {
    on_both(|control, world| {
        queue(&control, 1, 3);
        let other = Arc::new(Node::new(&control, &world, EAGER, nothing()));
        let asked = Arc::clone(&other);
        let node = Node::new(
            &control,
            &world,
            EAGER,
            Box::new(move |_, _| {
                let asked = Arc::clone(&asked);
                assert!(!std::thread::spawn(move || asked.turn()).join().unwrap(), "it is not due");
            }),
        );
        assert!(node.turn());
        assert_eq!((node.numbers(1), other.numbers(1)), (vec![1, 2, 3], vec![]));
    });
}

#[test]
fn a_job_whose_node_says_nothing_goes_to_another_one_and_the_first_is_told() {
    on_both(|control, world| {
        queue(&control, 1, 4);
        let other = Arc::new(Node::new(&control, &world, EAGER, nothing()));
        let (asked, clock) = (Arc::clone(&other), Arc::clone(&world));
        let node = Node::new(
            &control,
            &world,
            EAGER,
            Box::new(move |_, number| {
                if number == 3 {
                    // It hangs for longer than its lease.
                    clock.advance(LEASE_MS);
                    let asked = Arc::clone(&asked);
                    assert!(std::thread::spawn(move || asked.turn()).join().unwrap());
                }
            }),
        );
        assert!(node.turn());
        // What it had kept was two pieces; the other one went on from there, and the end was its own.
        assert_eq!((node.numbers(1), other.numbers(1)), (vec![1, 2, 3], vec![3, 4]));
        assert_eq!((node.job(1).state, node.job(1).claim), (JobState::Done, 2));
        assert_eq!(World::now_ms(&*node.world), MORNING_MS + LEASE_MS);
    });
}

#[test]
fn a_cancelled_job_stops_at_its_next_position() {
    on_both(|control, world| {
        queue(&control, 1, 200);
        let cancelling = Arc::clone(&control);
        let node = Node::new(
            &control,
            &world,
            EAGER,
            Box::new(move |id, number| {
                if number == 5 {
                    let cancelling = Arc::clone(&cancelling);
                    let cancel = move || wait(cancelling.cancel_job(id, MORNING_MS, vec![])).unwrap();
                    assert!(std::thread::spawn(cancel).join().unwrap());
                }
            }),
        );
        assert!(node.turn());
        assert_eq!((node.numbers(1), node.job(1).state), (vec![1, 2, 3, 4, 5], JobState::Cancelled));
        assert_eq!(node.job(1).position, Some(vec![4]));
    });
}

#[test]
fn a_job_that_takes_long_gives_way_to_others() {
    on_both(|control, world| {
        let node = Node::new(&control, &world, EAGER, nothing());
        for (n, end) in [(1, 3), (2, 2)] {
            queue(&control, n, end);
        }
        let mut last = None;
        let stop = Stop::new();
        while block(node.runner.turn(&stop, &mut last)).unwrap() {}
        let log: Vec<(u8, u8)> =
            node.work.log.lock().unwrap().iter().map(|(id, number)| (id.0.0[0], *number)).collect();
        assert_eq!(log, [(1, 1), (2, 1), (1, 2), (2, 2), (1, 3)]);
    });
}

#[test]
fn a_job_is_tried_again_when_the_store_could_not_be_read() {
    on_both(|control, world| {
        queue(&control, 1, 2);
        let node = Node::new(&control, &world, EAGER, nothing());
        node.work.fails.store(1, Ordering::SeqCst);
        assert!(node.turn());
        assert!(!node.turn(), "it rests");
        world.advance(10_000);
        assert!(node.turn());
        assert_eq!((node.numbers(1), node.job(1).state), (vec![1, 1, 2], JobState::Done));
    });
}

#[test]
fn a_job_is_given_up_by_how_long_it_has_been_failing_and_not_by_its_age() {
    const DAY_MS: u64 = 24 * 60 * 60 * 1000;
    on_both(|control, world| {
        queue(&control, 1, 3);
        let node = Node::new(&control, &world, EAGER, nothing());
        // Nobody was there for two days, and its first failure is its first.
        world.advance(2 * DAY_MS);
        node.work.fails.store(1, Ordering::SeqCst);
        assert!(node.turn());
        assert_eq!(
            (node.job(1).state, node.job(1).failing_since_ms),
            (JobState::Running, Some(World::now_ms(&*world)))
        );
        // It goes on, and what was before is forgotten.
        world.advance(DAY_MS - 1);
        queue(&control, 2, 1);
        assert!(node.turn());
        assert_eq!((node.numbers(1), node.job(1).failing_since_ms), (vec![1, 1], None));
        assert!(node.turn());
        node.work.fails.store(9, Ordering::SeqCst);
        for (passed_ms, state) in
            [(1, JobState::Running), (DAY_MS - 10_000, JobState::Running), (10_000, JobState::Failed)]
        {
            world.advance(passed_ms);
            while node.turn() {}
            assert_eq!(node.job(1).state, state, "{passed_ms}");
        }
        assert!(node.job(1).cause.unwrap().contains("asked for by a test"));
    });
}

#[test]
fn a_job_that_panics_a_few_times_has_failed_and_others_are_done() {
    on_both(|control, world| {
        for n in [1, 2] {
            queue(&control, n, 2);
        }
        let node = Node::new(
            &control,
            &world,
            Pace::default(),
            Box::new(|id, _| assert!(id != job_id(1), "asked for by a test")),
        );
        for deaths in 1..=DEATHS_MAX {
            assert_eq!(node.job(1).state.as_str(), if deaths == 1 { "waiting" } else { "running" });
            while node.turn() {}
            assert_eq!(node.job(2).state, JobState::Done);
            world.advance(10_000);
        }
        let failed = node.job(1);
        assert_eq!((failed.state, node.numbers(1).len() as u64), (JobState::Failed, DEATHS_MAX));
        assert!(failed.cause.unwrap().contains("asked for by a test"));
    });
}

#[test]
fn a_job_whose_nodes_die_a_few_times_has_failed_and_is_not_begun_again() {
    on_both(|control, world| {
        queue(&control, 1, 2);
        for _ in 0..DEATHS_MAX {
            let now_ms = World::now_ms(&*world);
            let claimed = wait(control.claim_job(job_id(1), now_ms, now_ms + LEASE_MS)).unwrap().unwrap();
            // It got somewhere each time: that is no reason to go on for ever.
            assert!(wait(control.advance_job(job_id(1), claimed.claim, vec![1], now_ms + LEASE_MS)).unwrap());
            world.advance(LEASE_MS);
        }
        let node = Node::new(&control, &world, Pace::default(), nothing());
        assert!(node.turn());
        assert_eq!((node.numbers(1), node.job(1).state), (vec![], JobState::Failed));
    });
}

#[test]
fn a_job_that_is_given_back_has_not_taken_its_node_with_it() {
    on_both(|control, world| {
        for n in [1, 2] {
            queue(&control, n, 20);
        }
        let node = Node::new(&control, &world, EAGER, nothing());
        let (stop, mut last) = (Stop::new(), None);
        while block(node.runner.turn(&stop, &mut last)).unwrap() {}
        assert_eq!((node.job(1).state, node.job(1).deaths), (JobState::Done, 0));
        assert!(node.job(1).claim > DEATHS_MAX);
    });
}

#[test]
fn a_job_that_is_kept_in_memory_stays_with_its_node_when_it_gives_way() {
    on_both(|control, world| {
        for n in [1, 2] {
            queue(&control, n, 4);
        }
        let nodes = [0, 1].map(|_| Node::new(&control, &world, EAGER, nothing()));
        let (stop, mut last) = (Stop::new(), [None, None]);
        for _ in 0..4 {
            for (node, last) in nodes.iter().zip(&mut last) {
                node.work.stays.store(true, Ordering::SeqCst);
                block(node.runner.turn(&stop, last)).unwrap();
            }
        }
        assert_eq!((nodes[0].numbers(1), nodes[0].numbers(2)), (vec![1, 2, 3, 4], vec![]));
        assert_eq!((nodes[1].numbers(1), nodes[1].numbers(2)), (vec![], vec![1, 2, 3, 4]));
        assert_eq!((nodes[0].job(1).claim, nodes[0].job(2).claim), (1, 1));
    });
}

#[test]
fn a_runner_that_is_stopped_gives_back_what_waits_for_its_turn_too() {
    on_both(|control, world| {
        for n in [1, 2] {
            queue(&control, n, 9);
        }
        let stop = Arc::new(Stop::new());
        let stopping = Arc::clone(&stop);
        let at_step: Hook = Box::new(move |id, number| {
            if (id, number) == (job_id(2), 2) {
                stopping.stop();
            }
        });
        let node = Node::new(&control, &world, EAGER, at_step);
        node.work.stays.store(true, Ordering::SeqCst);
        block(node.runner.run(&stop));
        for n in [1, 2] {
            assert_eq!((node.job(n).due_at_ms, node.job(n).held), (MORNING_MS, false), "{n}");
        }
    });
}

#[test]
fn a_runner_that_is_stopped_gives_its_job_back_and_it_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let world = StillWorld::random_at(MORNING_MS);
    let done_before = {
        let store = EmbeddedStore::open(dir.path(), &small(&StillWorld::new())).unwrap();
        let control = Arc::new(Control::embedded(&store).unwrap());
        furnish(&control);
        queue(&control, 1, 9);
        let stop = Arc::new(Stop::new());
        let stopping = Arc::clone(&stop);
        let at_step: Hook = Box::new(move |_, number| {
            if number == 5 {
                stopping.stop();
            }
        });
        let node = Node::new(&control, &world, Pace::default(), at_step);
        block(node.runner.run(&stop));
        let job = node.job(1);
        assert_eq!((job.state, job.due_at_ms), (JobState::Running, MORNING_MS), "it is due at once");
        assert_eq!(job.position, Some(vec![4]), "the piece that was dropped is done again");
        node.numbers(1)
    };
    assert_eq!(done_before, [1, 2, 3, 4, 5]);
    let store = EmbeddedStore::open(dir.path(), &small(&StillWorld::new())).unwrap();
    let control = Arc::new(Control::embedded(&store).unwrap());
    let node = Node::new(&control, &world, Pace::default(), nothing());
    assert!(node.turn());
    assert_eq!((node.numbers(1), node.job(1).state), (vec![5, 6, 7, 8, 9], JobState::Done));
}

#[test]
fn a_runner_that_was_killed_leaves_its_job_to_the_end_of_the_lease() {
    on_both(|control, world| {
        queue(&control, 1, 3);
        wait(control.claim_job(job_id(1), MORNING_MS, MORNING_MS + LEASE_MS)).unwrap().unwrap();
        let node = Node::new(&control, &world, Pace::default(), nothing());
        world.advance(LEASE_MS - 1);
        assert!(!node.turn());
        world.advance(1);
        assert!(node.turn());
        assert_eq!(node.job(1).state, JobState::Done);
    });
}

/// Of another kind, done at the first step.
struct Short(Arc<AtomicU64>);

impl Work for Short {
    fn kind(&self) -> &'static str {
        "short"
    }

    fn step<'a>(&'a self, _: &'a Job, _: &'a [u8]) -> BoxFuture<'a, Result<Step, StoreError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(Step::Done { position: vec![], records: vec![] }) })
    }
}

#[test]
fn kinds_take_turns_so_that_none_waits_for_the_end_of_another() {
    on_both(|control, world| {
        let mut node = Node::new(&control, &world, EAGER, nothing());
        let done = Arc::new(AtomicU64::new(0));
        node.runner.works.push(Arc::new(Short(Arc::clone(&done))));
        queue(&control, 1, 200);
        queue(&control, 2, 200);
        let short = NewJob {
            id: job_id(9),
            kind: "short".into(),
            tenant_id: Some(TENANT),
            person_id: None,
            subject: None,
            parameters: "{}".into(),
            created_at_ms: MORNING_MS,
        };
        wait(control.create_job(short)).unwrap();
        let (stop, mut last) = (Stop::new(), None);
        for _ in 0..4 {
            assert!(block(node.runner.turn(&stop, &mut last)).unwrap());
        }
        assert_eq!(
            done.load(Ordering::SeqCst),
            1,
            "it had its turn while the others have theirs before them"
        );
        // And those of one kind still take turns among themselves.
        let begun = |n| !node.numbers(n).is_empty();
        assert!(begun(1) && begun(2) && node.job(1).ended_at_ms.is_none());
    });
}
