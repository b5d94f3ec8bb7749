//! Passwords of dashboard users: argon2id, a few at a time, since each takes 19 MiB.

use argon2::password_hash::{Error, PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use sealog_store::world::World;
use tokio::sync::Semaphore;

use crate::secret::Secret;

pub const LENGTH_MIN: usize = 10;
/// More would be work for nothing.
pub const LENGTH_MAX: usize = 1000;
/// OWASP's minimum for argon2id: 19 MiB, two passes, one lane.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
/// Hashes at a time; more wait, so that logging in is no way to use up the memory.
static AT_A_TIME: Semaphore = Semaphore::const_new(2);

/// The hash of a password as a PHC string.
pub async fn hash(world: &dyn World, password: Secret) -> Result<String, String> {
    let mut salt = [0; 16];
    world.fill_random(&mut salt);
    in_turn(&AT_A_TIME, move || hash_now(&password.0, &salt)).await?
}

/// Whether this is the password of which that is the hash. Without a hash it is not, after the same work: how long
/// it takes does not tell whether there is such an account.
pub async fn verify(hash: Option<String>, password: Secret) -> Result<bool, String> {
    in_turn(&AT_A_TIME, move || verify_now(hash.as_deref(), &password.0)).await?
}

/// Runs on a thread for blocking work, when there is room for one more.
async fn in_turn<T: Send + 'static>(
    places: &'static Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let place = places.acquire().await.map_err(|error| error.to_string())?;
    // The work has the place: it goes on when whoever asked for it has hung up.
    let work = move || {
        let _place = place;
        work()
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())
}

fn verify_now(hash: Option<&str>, password: &str) -> Result<bool, String> {
    let Some(hash) = hash else {
        return hash_now(password, &[0; 16]).map(|_| false);
    };
    match Argon2::default().verify_password(password.as_bytes(), hash) {
        Ok(()) => Ok(true),
        Err(Error::PasswordInvalid) => Ok(false),
        Err(error) => Err(format!("the hash of a password cannot be read: {error}")),
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
    use std::sync::{Arc, Mutex};

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

    #[test]
    fn two_hashes_are_made_at_a_time_and_the_others_wait() {
        const ALL: usize = 8;
        static PLACES: Semaphore = Semaphore::const_new(2);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (begun, begins) = std::sync::mpsc::channel();
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let hashes: Vec<_> = (0..ALL)
            .map(|_| {
                let (begun, gate) = (begun.clone(), Arc::clone(&gate));
                runtime.spawn(in_turn(&PLACES, move || {
                    begun.send(()).unwrap();
                    let _ = gate.lock().unwrap().recv();
                }))
            })
            .collect();
        runtime.block_on(async {
            for done in 0..ALL {
                // All that can begin has begun: nobody else is let in before one of these has ended.
                tokio::task::yield_now().await;
                let places = PLACES.available_permits();
                assert_eq!(places, if done == ALL - 1 { 1 } else { 0 }, "after {done}");
                release.send(()).unwrap();
                while hashes.iter().filter(|hash| hash.is_finished()).count() <= done {
                    tokio::task::yield_now().await;
                }
            }
        });
        assert_eq!(begins.try_iter().count(), ALL);
    }

    #[test]
    fn work_keeps_its_place_when_whoever_asked_for_it_has_gone() {
        static PLACES: Semaphore = Semaphore::const_new(1);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (begun, begins) = std::sync::mpsc::channel();
        let (release, gate) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async {
            let asked = tokio::spawn(in_turn(&PLACES, move || {
                begun.send(()).unwrap();
                let _ = gate.recv();
            }));
            tokio::task::yield_now().await;
            begins.recv().unwrap();
            asked.abort();
            assert!(asked.await.unwrap_err().is_cancelled());
            assert_eq!(PLACES.available_permits(), 0, "it still runs");
            release.send(()).unwrap();
            let _place = PLACES.acquire().await.unwrap();
        });
    }
}
