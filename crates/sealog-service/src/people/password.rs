//! Passwords of dashboard users: argon2id, a few at a time, since each takes 19 MiB and a core.
//!
//! Whoever is known goes first, and no queue is longer than a person waits: a crowd that guesses passwords
//! makes others of its kind wait, and not the people who sign in from where they always do, nor the events
//! that come in.

use std::collections::VecDeque;
use std::sync::{LazyLock, Mutex};

use argon2::password_hash::{Error, PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use sealog_store::pool::{Payer, ThreadPool};
use sealog_store::sync::lock;
use sealog_store::world::World;
use tokio::sync::oneshot;

use crate::secret::Secret;

pub const LENGTH_MIN: usize = 10;
/// More would be work for nothing.
pub const LENGTH_MAX: usize = 1000;
/// OWASP's minimum for argon2id: 19 MiB, two passes, one lane.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
/// Hashes at a time; more wait, so that logging in is no way to use up the memory.
const AT_A_TIME: usize = 2;
/// Checks that wait, of strangers and of those who are known. One takes about 30 ms, so strangers wait for
/// half a second.
const STRANGERS_MAX: usize = 32;
const KNOWN_MAX: usize = 256;
/// Below that of the event loops and the store: an event does not wait for a password.
const NICENESS: i32 = 10;

static QUEUE: Queue = Queue::new(AT_A_TIME);
static THREADS: LazyLock<ThreadPool> =
    LazyLock::new(|| ThreadPool::start("sealog-password", AT_A_TIME, Some(NICENESS)));

/// Who waits for a password to be hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// From a browser that the person has signed in with, in a session, by a link, or as an operator.
    Known,
    Stranger,
}

/// Why a password was not compared with its hash.
#[derive(Debug, PartialEq, Eq)]
pub enum Unchecked {
    /// As many wait as may wait.
    Busy,
    Failed(String),
}

/// The hash of a password as a PHC string, for somebody who has shown to be allowed to set it.
pub async fn hash(world: &dyn World, password: Secret) -> Result<String, String> {
    let mut salt = [0; 16];
    world.fill_random(&mut salt);
    match in_turn(&QUEUE, Asks::Known, move || hash_now(&password.0, &salt)).await {
        Ok(hash) => hash,
        Err(Unchecked::Failed(cause)) => Err(cause),
        Err(Unchecked::Busy) => Err("too many passwords are waiting to be hashed".into()),
    }
}

/// Whether this is the password of which that is the hash. Without a hash it is not, after the same work: how
/// long it takes does not tell whether there is such an account.
pub async fn verify(hash: Option<String>, password: Secret, asks: Asks) -> Result<bool, Unchecked> {
    let verified = in_turn(&QUEUE, asks, move || verify_now(hash.as_deref(), &password.0)).await?;
    verified.map_err(Unchecked::Failed)
}

/// Runs on a thread of its own, when there is room for one more.
async fn in_turn<T: Send + 'static>(
    queue: &'static Queue,
    asks: Asks,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unchecked> {
    let place = queue.enter(asks).await?;
    // The work has the place: it goes on when whoever asked for it has hung up.
    let work = move || {
        let _place = place;
        work()
    };
    let ended = THREADS.run(Payer::Operator, 0, work).await;
    ended.map_err(|_| Unchecked::Failed("failed to hash a password".into()))
}

/// Who may hash, and who waits for it.
#[derive(Debug)]
struct Queue(Mutex<Waiting>);

#[derive(Debug)]
struct Waiting {
    free: usize,
    known: VecDeque<oneshot::Sender<Place>>,
    strangers: VecDeque<oneshot::Sender<Place>>,
}

/// Held while a password is hashed.
#[derive(Debug)]
struct Place(&'static Queue);

impl Queue {
    const fn new(at_a_time: usize) -> Queue {
        Queue(Mutex::new(Waiting { free: at_a_time, known: VecDeque::new(), strangers: VecDeque::new() }))
    }

    async fn enter(&'static self, asks: Asks) -> Result<Place, Unchecked> {
        let turn = {
            let mut waiting = lock(&self.0);
            if waiting.free > 0 {
                waiting.free -= 1;
                return Ok(Place(self));
            }
            let (queue, most) = match asks {
                Asks::Known => (&mut waiting.known, KNOWN_MAX),
                Asks::Stranger => (&mut waiting.strangers, STRANGERS_MAX),
            };
            if queue.len() >= most {
                // Clients that have hung up make room.
                queue.retain(|waiter| !waiter.is_closed());
            }
            if queue.len() >= most {
                return Err(Unchecked::Busy);
            }
            let (sender, turn) = oneshot::channel();
            queue.push_back(sender);
            turn
        };
        turn.await.map_err(|_| Unchecked::Failed("the password queue is closed".into()))
    }

    /// Hands a place to the next that waits for it.
    fn pass_on(&'static self) {
        loop {
            let next = {
                let mut waiting = lock(&self.0);
                let next = waiting.known.pop_front();
                match next.or_else(|| waiting.strangers.pop_front()) {
                    Some(next) => next,
                    None => {
                        waiting.free += 1;
                        return;
                    }
                }
            };
            match next.send(Place(self)) {
                Ok(()) => return,
                // Has hung up; the place is for the one behind.
                Err(place) => std::mem::forget(place),
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.pass_on();
    }
}

fn verify_now(hash: Option<&str>, password: &str) -> Result<bool, String> {
    let Some(hash) = hash else {
        return hash_now(password, &[0; 16]).map(|_| false);
    };
    match Argon2::default().verify_password(password.as_bytes(), hash) {
        Ok(()) => Ok(true),
        Err(Error::PasswordInvalid) => Ok(false),
        Err(error) => Err(format!("cannot read a password hash: {error}")),
    }
}

pub fn hash_now(password: &str, salt: &[u8; 16]) -> Result<String, String> {
    let params = Params::new(MEMORY_KIB, PASSES, 1, None).map_err(|error| error.to_string())?;
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let hash =
        argon2.hash_password_with_salt(password.as_bytes(), salt).map_err(|error| error.to_string())?;
    Ok(hash.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_hash_is_argon2id_with_at_least_19_mib_and_differs_by_salt() {
        let hash = hash_now("correct horse battery", &[1; 16]).unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert_ne!(hash, hash_now("correct horse battery", &[2; 16]).unwrap());
    }

    #[test]
    fn a_password_is_right_for_its_own_hash_alone() {
        let hash = hash_now("correct horse battery", &[1; 16]).unwrap();
        assert_eq!(verify_now(Some(&hash), "correct horse battery"), Ok(true));
        assert_eq!(verify_now(Some(&hash), "correct horse batterz"), Ok(false));
        assert_eq!(verify_now(None, "correct horse battery"), Ok(false));
        assert!(verify_now(Some("no hash"), "correct horse battery").is_err());
    }

    /// Holds all places of a queue. Whoever passes has begun; a word lets one go on.
    struct Held {
        queue: &'static Queue,
        begun: Sender<usize>,
        begins: Receiver<usize>,
        release: Sender<()>,
        gate: Arc<Mutex<Receiver<()>>>,
    }

    impl Held {
        fn new(queue: &'static Queue) -> Held {
            let ((begun, begins), (release, gate)) = (channel(), channel());
            Held { queue, begun, begins, release, gate: Arc::new(Mutex::new(gate)) }
        }

        fn ask(
            &self,
            number: usize,
            asks: Asks,
        ) -> impl Future<Output = Result<(), Unchecked>> + Send + 'static {
            let (begun, gate) = (self.begun.clone(), Arc::clone(&self.gate));
            in_turn(self.queue, asks, move || {
                begun.send(number).unwrap();
                let _ = gate.lock().unwrap().recv();
            })
        }
    }

    fn free(queue: &Queue) -> usize {
        lock(&queue.0).free
    }

    #[tokio::test(flavor = "current_thread")]
    async fn two_hashes_are_made_at_a_time_and_the_others_wait() {
        static PLACES: Queue = Queue::new(AT_A_TIME);
        const ALL: usize = 8;
        let held = Held::new(&PLACES);
        let hashes: Vec<_> = (0..ALL).map(|n| tokio::spawn(held.ask(n, Asks::Stranger))).collect();
        for done in 0..ALL {
            // All that can begin has begun: nobody else is let in before one of these has ended.
            tokio::task::yield_now().await;
            assert_eq!(free(&PLACES), if done == ALL - 1 { 1 } else { 0 }, "after {done}");
            held.release.send(()).unwrap();
            while hashes.iter().filter(|hash| hash.is_finished()).count() <= done {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(held.begins.try_iter().count(), ALL);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn so_many_strangers_wait_and_one_more_is_refused_while_those_who_are_known_go_first() {
        static PLACES: Queue = Queue::new(1);
        let held = Held::new(&PLACES);
        let mut asked = vec![tokio::spawn(held.ask(0, Asks::Stranger))];
        asked.extend((1..=STRANGERS_MAX).map(|n| tokio::spawn(held.ask(n, Asks::Stranger))));
        tokio::task::yield_now().await;
        // One that was let in would wait for the places that are held here.
        let refused = tokio::time::timeout(Duration::from_secs(10), held.ask(98, Asks::Stranger));
        assert_eq!(refused.await.expect("it is answered at once"), Err(Unchecked::Busy));
        asked.push(tokio::spawn(held.ask(99, Asks::Known)));
        tokio::task::yield_now().await;
        // One that hangs up makes room for another.
        asked.remove(1).abort();
        tokio::task::yield_now().await;
        asked.push(tokio::spawn(held.ask(97, Asks::Stranger)));
        tokio::task::yield_now().await;
        for _ in 0..asked.len() {
            held.release.send(()).unwrap();
        }
        for asked in asked {
            assert_eq!(asked.await.unwrap(), Ok(()));
        }
        let order: Vec<usize> = held.begins.try_iter().collect();
        assert_eq!(order[..3], [0, 99, 2]);
        assert_eq!((order.len(), order.last()), (STRANGERS_MAX + 2, Some(&97)));
        assert_eq!(free(&PLACES), 1);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn work_keeps_its_place_when_whoever_asked_for_it_has_gone() {
        static PLACES: Queue = Queue::new(1);
        let held = Held::new(&PLACES);
        let asked = tokio::spawn(held.ask(0, Asks::Known));
        while held.begins.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled());
        assert_eq!(free(&PLACES), 0, "it still runs");
        held.release.send(()).unwrap();
        let _place = PLACES.enter(Asks::Known).await.unwrap();
    }
}
