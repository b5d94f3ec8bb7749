//! Failed sign-ins. Those of people who have an account go into the system chains of their organisations, at
//! most once a minute for each account, with how many there were. Those of accounts that do not exist have no
//! chain to go into: they are counted, and logged.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sealog_control::{Control, NewRecord, PersonId, Wrong};
use sealog_core::time::iso_ms;
use sealog_store::world::World;
use serde_json::json;

use super::kind::People;
use crate::people::sign_in::{Accounts, Failed, Visitor};
use crate::records::system_chain::{Actor, Recorder, Wake, actions};

/// How long failures of one account are counted before they are recorded.
const COUNTED_MS: u64 = 60 * 1000;
/// Accounts whose failures one transaction records.
const AT_A_TIME: usize = 100;
/// How often to look for counts that are due.
const EVERY: Duration = Duration::from_secs(5);

impl Accounts<People> {
    /// Left to a task of its own: how long the answer takes does not tell that there is such an account.
    pub(super) fn note_failure(&self, person_id: Option<PersonId>, what: Wrong, visitor: &Visitor) {
        let Some(person_id) = person_id else {
            self.counts.unknown_accounts.fetch_add(1, Ordering::Relaxed);
            // Where from, and not which address was typed: that may be a password, or somebody's elsewhere.
            tracing::info!(address = %visitor.address, "sign-in to an account that does not exist");
            return;
        };
        let count = match what {
            Wrong::Password => &self.counts.wrong_passwords,
            Wrong::Code => &self.counts.wrong_codes,
        };
        count.fetch_add(1, Ordering::Relaxed);
        let (people, now_ms) = (Arc::clone(&self.control), self.world.now_ms());
        tokio::spawn(async move {
            if let Err(error) = people.count_failure(person_id, what, now_ms).await {
                tracing::error!(%error, "failed to record a failed sign-in; it will be missing from the system chain");
            }
        });
    }
}

/// Puts failures that were counted into the system chains.
#[derive(Clone)]
pub struct FailedSignIns {
    pub control: Arc<Control>,
    pub world: Arc<dyn World>,
    pub wake: Wake,
}

impl FailedSignIns {
    /// Records what is due, from time to time. What is not recorded yet is found again after a restart.
    pub async fn watch(&self) {
        loop {
            tokio::time::sleep(EVERY).await;
            if let Err(Failed(error)) = self.record_due().await {
                let retry_in_s = EVERY.as_secs();
                tracing::warn!(%error, retry_in_s, "failed to record failed sign-ins; retrying");
            }
        }
    }

    /// Records counts that began a minute ago or earlier.
    pub async fn record_due(&self) -> Result<(), Failed> {
        let until_ms = self.world.now_ms().saturating_sub(COUNTED_MS);
        loop {
            let world = Arc::clone(&self.world);
            let tell = move |failed: &sealog_control::Failed| told(&world, failed);
            let people = self.control.record_failures(until_ms, AT_A_TIME, Box::new(tell)).await?;
            if people > 0 {
                self.wake.wake();
            }
            if people < AT_A_TIME {
                return Ok(());
            }
        }
    }
}

fn told(world: &Arc<dyn World>, failed: &sealog_control::Failed) -> NewRecord {
    let recorder = Recorder::new(Actor::Person(failed.person_id), Arc::clone(world));
    let metadata = json!({
        "attempts": failed.passwords + failed.codes,
        "wrong_passwords": failed.passwords,
        "wrong_codes": failed.codes,
        "since": iso_ms(failed.began_at_ms),
    });
    recorder.record(&actions::SIGN_IN_FAILED, &format!("member/{}", failed.person_id.0), metadata)
}
