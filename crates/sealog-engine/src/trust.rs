//! What the store publishes about its chains: the trees, the store log and its signer, put together.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sealog_core::id::ChainId;
use sealog_store::StoreError;
use sealog_store::pool::{Payer, ThreadPool};
use sealog_store::world::World;
use sealog_tlog::BuiltHeads;
use sealog_tlog::log::{Figures, HeadSource, LogKey, Place, Settings, Signer, SignerError, State, StoreLog};
use sealog_tlog::trees::{Pass, Trees};
use sealog_trust::note::SigningKey;
use tokio::runtime::Handle;

/// A pass that took so many events is followed by the next one at once.
const PENDING_LEAVES: u64 = 250_000;
/// How often at least a server that does not sign builds the trees, and looks whether it may sign by now.
const IDLE_EVERY: Duration = Duration::from_secs(60);
/// Reads of the store log that may wait for the thread.
const WAITING_MAX: usize = 1000;
/// What a read counts in its queue. They are all small.
const COST: usize = 4 << 10;

/// The trees and the signed log of a store. Proofs of a chain come from [`Trust::trees`], everything about
/// the log from [`Trust::read`].
#[derive(Debug)]
pub struct Trust {
    pub trees: Arc<Trees>,
    log: Arc<StoreLog>,
    signer: Arc<Signer>,
    /// Of reads of the log, which block.
    reader: ThreadPool,
}

/// When a log begins where the keys are to be made here and there was never one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// As a server does.
    AtStart,
    /// [`Trust::init`] does it.
    OnCommand,
}

/// What an operator may know of the signed log.
#[derive(Clone, Debug)]
pub struct Status {
    pub state: State,
    /// Where the log is; None before it began.
    pub place: Option<Place>,
    pub signed_size: u64,
    /// Of this log, in the order of their entries.
    pub keys: Vec<LogKey>,
    /// What checkpoints are verified with.
    pub vkey: Option<String>,
    /// How many were published.
    pub chains: usize,
    /// Chains that do not continue what was published, and why.
    pub findings: Vec<(ChainId, String)>,
    pub state_copy: Option<PathBuf>,
}

impl Trust {
    /// Finds out whether this server signs; begins a log where there was never one and the keys are to be
    /// made here. Blocks.
    pub fn open(
        trees: Trees,
        settings: Settings,
        world: Arc<dyn World>,
        begins: Begins,
    ) -> Result<Trust, SignerError> {
        let log = Arc::new(trees.store_log());
        let signer = Arc::new(match begins {
            Begins::AtStart => Signer::open(Arc::clone(&log), settings, world, None),
            Begins::OnCommand => Signer::look(Arc::clone(&log), settings, world, None),
        }?);
        Ok(Trust { trees: Arc::new(trees), log, signer, reader: ThreadPool::start("sealog-log", 1, None) })
    }

    /// Reads the store log: entries, tiles, checkpoints, keys, heads of chains. The queue is fair between
    /// tenants; whoever shows no key is a stranger.
    pub async fn read<T: Send + 'static>(
        &self,
        payer: impl Into<Payer>,
        act: impl FnOnce(&StoreLog) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let log = Arc::clone(&self.log);
        let answer = self.reader.run_below(WAITING_MAX, payer, COST, move || act(&log));
        let answer =
            answer.ok_or_else(|| StoreError::Unavailable("the queue of the store log is full".into()))?;
        answer.await.unwrap_or_else(|_| Err(StoreError::Read("a read of the store log panicked".into())))
    }

    /// What checkpoints and proofs are verified with; None before the log began.
    pub async fn vkey(&self) -> Result<Option<String>, StoreError> {
        self.read(Payer::Operator, |log| Ok(log.vkey()?.map(|key| key.to_string()))).await
    }

    /// Begins the log: once, where that is left to a command. Blocks.
    pub fn init(&self) -> Result<(), SignerError> {
        self.signer.init()
    }

    pub async fn status(&self) -> Result<Status, StoreError> {
        let signer = Arc::clone(&self.signer);
        self.read(Payer::Operator, move |log| {
            Ok(Status {
                state: signer.state(),
                place: log.place()?,
                signed_size: log.newest()?.map_or(0, |signed| signed.tree.size),
                keys: log.keys()?,
                vkey: log.vkey()?.map(|key| key.to_string()),
                chains: log.published()?.len(),
                findings: log.findings()?,
                state_copy: signer.settings().state_copy.as_ref().map(|copy| copy.path().to_owned()),
            })
        })
        .await
    }

    /// Whether this server signs, and why not.
    pub fn state(&self) -> State {
        self.signer.state()
    }

    /// The key that signs for single chains. None for a server that does not have it.
    pub fn service_key(&self) -> Option<SigningKey> {
        self.signer.service_key()
    }

    pub fn figures(&self) -> Figures {
        self.signer.figures()
    }

    /// What is wrong, in words for the operator.
    pub(crate) fn trouble(&self) -> Vec<String> {
        let mut trouble = Vec::new();
        let stopped = self.trees.lag().stopped;
        if stopped > 0 {
            trouble.push(format!(
                "the trees of {stopped} chains stopped growing; the log names them and says why"
            ));
        }
        let state = self.state();
        if state.is_trouble() {
            trouble.push(state.to_string());
        }
        trouble
    }

    /// Makes a snapshot in every interval where this server signs, and brings the trees up to date where it
    /// does not. What was begun is finished by the next start.
    pub(crate) async fn watch(&self) {
        let heads = BuiltHeads::new(Arc::clone(&self.trees), Arc::clone(&self.log), Handle::current());
        let source: Arc<dyn HeadSource> = Arc::new(heads);
        loop {
            let before = self.trees.lag().leaves;
            let wait = match self.state() {
                State::Signing => {
                    let (signer, source) = (Arc::clone(&self.signer), Arc::clone(&source));
                    let step = tokio::task::spawn_blocking(move || signer.step(&*source)).await;
                    match step {
                        Ok(wait) => wait,
                        // The supervisor counts it, and begins this loop anew.
                        Err(error) => match error.try_into_panic() {
                            Ok(panic) => std::panic::resume_unwind(panic),
                            Err(_) => return,
                        },
                    }
                }
                _ => {
                    self.pass().await;
                    let signer = Arc::clone(&self.signer);
                    let looked = tokio::task::spawn_blocking(move || signer.look_again()).await;
                    match looked {
                        Ok(Ok(State::Signing)) => Duration::ZERO,
                        Ok(Ok(_)) | Err(_) => self.idle_every(),
                        Ok(Err(error)) => {
                            tracing::error!(%error, "cannot find out whether this server signs; retrying");
                            self.idle_every()
                        }
                    }
                }
            };
            let mut taken = self.trees.lag().leaves.saturating_sub(before);
            while taken >= PENDING_LEAVES {
                taken = self.pass().await;
            }
            tokio::time::sleep(wait).await;
        }
    }

    fn idle_every(&self) -> Duration {
        IDLE_EVERY.min(Duration::from_secs(self.signer.settings().interval_s))
    }

    /// The number of events that it took into the trees.
    async fn pass(&self) -> u64 {
        match self.trees.pass().await {
            Ok(Pass::Done { leaves, .. }) => leaves,
            Ok(Pass::Elsewhere) | Err(StoreError::Closing) => 0,
            Err(error) => {
                tracing::error!(%error, "failed to bring the trees of the chains up to date; retrying");
                0
            }
        }
    }
}
