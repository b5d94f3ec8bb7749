//! What the store publishes about its chains: the trees, the store log and its signer, put together.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealog_control::{Control, KnownLog};
use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Ulid};
use sealog_store::lacking;
use sealog_store::pool::{Payer, ThreadPool};
use sealog_store::sync::lock;
use sealog_store::world::World;
use sealog_store::{Store, StoreError};
use sealog_tlog::BuiltHeads;
use sealog_tlog::log::{
    Copied, Figures, HeadSource, LogKey, Place, Published, Role, Settings, Signer, SignerError, State,
    StoreLog, TreeHead,
};
use sealog_tlog::trees::{self, Pass, Trees};
use sealog_trust::note::SigningKey;
use tokio::runtime::Handle;

/// A pass that took so many events is followed by the next one at once.
const PENDING_LEAVES: u64 = 250_000;
/// How often at least a server that does not sign builds the trees, and looks whether it may sign by now.
const IDLE_EVERY: Duration = Duration::from_secs(60);
/// Chains that are named where everything that is wrong is.
const NAMED_MAX: usize = 10;
/// Reads of the store log that may wait for the thread.
const WAITING_MAX: usize = 1000;
/// What a read counts in its queue. They are all small.
const COST: usize = 4 << 10;

/// The trees and the signed log of a store. Proofs of a chain come from [`Trust::trees`], everything about
/// the log from [`Trust::read`].
pub struct Trust {
    pub trees: Arc<Trees>,
    log: Arc<StoreLog>,
    signer: Arc<Signer>,
    store: Arc<dyn Store>,
    control: Arc<Control>,
    /// Origin and vkey of the log as control data knows them.
    remembered: Mutex<Option<(String, String)>>,
    telling: Mutex<()>,
    /// Chains that do not continue what was published, and what is wrong with each.
    misfits: Mutex<BTreeMap<ChainId, String>>,
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
    pub findings: Vec<String>,
    pub state_copy: Option<PathBuf>,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust")
            .field("trees", &self.trees)
            .field("signer", &self.signer)
            .finish_non_exhaustive()
    }
}

impl Trust {
    /// Finds out whether this server signs; begins a log where there was never one and the keys are to be
    /// made here. Blocks.
    pub fn open(
        trees: Trees,
        (store, control): (Arc<dyn Store>, Arc<Control>),
        known: Option<KnownLog>,
        settings: Settings,
        world: Arc<dyn World>,
        begins: Begins,
    ) -> Result<Trust, SignerError> {
        let log = Arc::new(trees.store_log());
        let origin = known.as_ref().map(|known| known.origin.as_str());
        let signer = Arc::new(match begins {
            Begins::AtStart => Signer::open(Arc::clone(&log), settings, world, origin),
            Begins::OnCommand => Signer::look(Arc::clone(&log), settings, world, origin),
        }?);
        let (trees, reader) = (Arc::new(trees), ThreadPool::start("sealog-log", 1, None));
        let (misfits, remembered) =
            (Mutex::default(), Mutex::new(known.map(|known| (known.origin, known.vkey))));
        let telling = Mutex::default();
        Ok(Trust { trees, log, signer, store, control, remembered, telling, misfits, reader })
    }

    /// Before the first event is taken: refuses events where the store was rolled back, and those of each
    /// chain that ends before its last published head. Chains that go beyond it are held against it by
    /// [`Trust::watch`], since that reads an event of each.
    pub async fn guard(&self) -> Result<(), StoreError> {
        self.tell_store();
        self.remember().await?;
        let published = self.read(Payer::Operator, StoreLog::published).await?;
        if published.is_empty() {
            return Ok(());
        }
        // Where a part of the log cannot be read, each chain is asked by itself, and the server still starts:
        // it serves what can be read.
        let heads: Option<HashMap<ChainId, Head>> = match self.store.heads().await {
            Ok(heads) => Some(heads.into_iter().collect()),
            Err(StoreError::Read(_)) => None,
            Err(error) => return Err(error),
        };
        for published in published {
            match self.guard_chain(&published, heads.as_ref()).await {
                Err(StoreError::Read(cause)) => {
                    let chain = published.chain;
                    tracing::error!(%chain, %cause, "cannot compare a chain with its last published head; trying again with the next snapshot");
                }
                held => held?,
            }
        }
        Ok(())
    }

    /// Compares the head of a chain alone, which the store has in memory. No event is read unless it differs,
    /// so that a start costs as much with long chains as with short ones.
    async fn guard_chain(
        &self,
        published: &Published,
        heads: Option<&HashMap<ChainId, Head>>,
    ) -> Result<(), StoreError> {
        let head = match heads {
            Some(heads) => heads.get(&published.chain).copied().unwrap_or(Head::EMPTY),
            None => self.store.head(published.chain).await?.durable,
        };
        match published.compare(head.chain_seq, head.hash, None) {
            Some(_) => self.hold(published).await.map(drop),
            None => Ok(()),
        }
    }

    /// Keeps in control data which log this is. A start that finds this, and no log, begins none.
    async fn remember(&self) -> Result<(), StoreError> {
        let log = self.read(Payer::Operator, |log| Ok(log.place()?.zip(log.vkey()?))).await?;
        let Some((place, vkey)) = log else { return Ok(()) };
        let known = KnownLog { origin: place.origin, vkey: vkey.to_string(), size: place.tree.size };
        let remembered = Some((known.origin.clone(), known.vkey.clone()));
        if *lock(&self.remembered) != remembered {
            self.control.know_log(known).await?;
            *lock(&self.remembered) = remembered;
        }
        Ok(())
    }

    /// Accepts no events of a chain that lacks its last published event. Whether it does.
    async fn hold(&self, published: &Published) -> Result<bool, StoreError> {
        let Published { chain, size, event_hash, .. } = *published;
        let known = Head { chain_seq: size, log_id: Ulid(0), hash: event_hash };
        if !lacking::lacks(&*self.store, chain, &known).await? {
            return Ok(false);
        }
        self.store.record_loss(chain, known).await?;
        let problem =
            format!("chain {chain} does not have event {size}, which was published; it rejects new events");
        if lock(&self.misfits).insert(chain, problem.clone()).as_ref() != Some(&problem) {
            tracing::error!(%chain, published = size, "a chain does not have the event that was published last; it rejects events until you accept the loss");
        }
        Ok(true)
    }

    /// Each chain as [`Trust::hold`] does it.
    async fn hold_all(&self) -> Result<(), StoreError> {
        for published in self.read(Payer::Operator, StoreLog::published).await? {
            self.hold(&published).await?;
        }
        Ok(())
    }

    /// Looks at the chains that the last snapshot could not publish. Where the loss was accepted, the log
    /// says so in an entry, and the next snapshot publishes the shorter chain.
    async fn settle(&self) -> Result<(), StoreError> {
        let findings = self.read(Payer::Operator, StoreLog::findings).await?;
        let held: Vec<ChainId> = lock(&self.misfits).keys().copied().collect();
        for chain in held.into_iter().filter(|chain| findings.iter().all(|(found, _)| found != chain)) {
            // Its tree may have stopped before its published head, so that no snapshot looks at it.
            let published = self.published_of(chain).await?;
            let is_held = match &published {
                Some(published) => self.hold(published).await?,
                None => false,
            };
            if !is_held {
                lock(&self.misfits).remove(&chain);
            }
        }
        for (chain, finding) in findings {
            let Some(published) = self.published_of(chain).await? else { continue };
            if self.hold(&published).await? {
                continue;
            }
            let known = Head { chain_seq: published.size, log_id: Ulid(0), hash: published.event_hash };
            let is_accepted = lacking::is_accepted(&*self.store, chain, &known).await?;
            // Of the shorter chain, once the builder has got that far.
            let tree = self.trees.head(chain).await.map_err(StoreError::from)?;
            let tree = tree.filter(|tree| is_accepted && tree.stopped.is_none());
            match tree {
                Some(tree) if self.state() == State::Signing && self.fits(&tree).await? => {
                    let head = TreeHead { chain, size: tree.size, root: tree.root, event_hash: tree.hash };
                    let signer = Arc::clone(&self.signer);
                    let declared = tokio::task::spawn_blocking(move || signer.declare_loss(&head)).await;
                    match declared {
                        Ok(Ok(())) => drop(lock(&self.misfits).remove(&chain)),
                        Ok(Err(error)) => {
                            tracing::error!(%error, "cannot declare an accepted loss; retrying")
                        }
                        Err(_) => {}
                    }
                }
                _ => drop(lock(&self.misfits).insert(chain, finding)),
            }
        }
        Ok(())
    }

    /// Whether a tree ends with an event that its chain has.
    async fn fits(&self, tree: &trees::TreeHead) -> Result<bool, StoreError> {
        let head = Head { chain_seq: tree.size, log_id: Ulid(0), hash: tree.hash };
        Ok(!lacking::contradicts(&*self.store, tree.chain, &head).await?)
    }

    async fn published_of(&self, chain: ChainId) -> Result<Option<Published>, StoreError> {
        self.read(Payer::Operator, move |log| log.published_of(chain)).await
    }

    /// Refuses events while the store is known to be rolled back, and no longer.
    fn tell_store(&self) {
        // One after the other, so that what was found out last is what counts.
        let _telling = lock(&self.telling);
        let state = self.state();
        self.store.set_rolled_back(state.refuses_events().then(|| state.to_string()));
    }

    /// Chains that do not continue what was published.
    pub fn misfits(&self) -> usize {
        lock(&self.misfits).len()
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

    /// Makes a new key of a role, and returns its vkey. Blocks.
    pub fn rotate(&self, role: Role) -> Result<String, SignerError> {
        self.signer.rotate(role).map(|key| key.to_string())
    }

    /// Goes on from another copy of the log, which has what a rollback lost. Blocks.
    pub fn recover(&self, copied: &Copied, reason: &str) -> Result<(), SignerError> {
        self.signer.recover(&copied.note, &copied.entries, reason)?;
        self.tell_store();
        Ok(())
    }

    /// Goes on from a copied log, of which the operator knows that nothing newer was signed. Blocks.
    pub fn accept_copy(&self, reason: &str) -> Result<(), SignerError> {
        let accepted = self.signer.accept_copy(reason);
        self.tell_store();
        accepted
    }

    /// Begins a new log that names the previous one, under new keys. Blocks.
    pub fn new_log(&self) -> Result<(), SignerError> {
        self.signer.new_log()?;
        self.tell_store();
        Ok(())
    }

    pub async fn status(&self) -> Result<Status, StoreError> {
        let (signer, misfits) = (Arc::clone(&self.signer), lock(&self.misfits).clone());
        self.read(Payer::Operator, move |log| {
            let mut findings: BTreeMap<ChainId, String> = log.findings()?.into_iter().collect();
            findings.extend(misfits);
            Ok(Status {
                state: signer.state(),
                place: log.place()?,
                signed_size: log.newest()?.map_or(0, |signed| signed.tree.size),
                keys: log.keys()?,
                vkey: log.vkey()?.map(|key| key.to_string()),
                chains: log.published()?.len(),
                findings: findings.into_values().collect(),
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
        trouble.extend(lock(&self.misfits).values().take(NAMED_MAX).cloned());
        trouble
    }

    /// Makes a snapshot in every interval where this server signs, and brings the trees up to date where it
    /// does not. What was begun is finished by the next start.
    pub(crate) async fn watch(&self) {
        let heads = BuiltHeads::new(Arc::clone(&self.trees), Arc::clone(&self.log), Handle::current());
        let source: Arc<dyn HeadSource> = Arc::new(heads);
        let mut held = false;
        loop {
            if !held {
                held = self.say(self.hold_all().await);
            }
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
            self.tell_store();
            self.say(self.settle().await);
            self.say(self.remember().await);
            tokio::time::sleep(wait).await;
        }
    }

    /// Whether it came to pass.
    fn say(&self, compared: Result<(), StoreError>) -> bool {
        match compared {
            Ok(()) => true,
            Err(StoreError::Closing) => false,
            Err(error) => {
                tracing::error!(%error, "cannot compare the store with its signed log; retrying");
                false
            }
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
