//! The signer: makes snapshots, signs the tree of the store log, and never signs one that does not extend
//! every tree signed before.
//!
//! ```text
//! t0  the time of the heads entry is read, then the trees are built to the durable end
//! t1  one transaction: heads, entry, tiles; by compare-and-swap on the tree
//! t2  the tree's size and root are in the state copy, synced, under its lock
//! t3  the signature
//! t4  the checkpoint is in the tables, hence served
//! ```
//!
//! A crash before t1 leaves nothing. After t1 the same tree is signed at the next start: the size and root
//! are durable, and Ed25519 gives the same signature. The signature comes after the state copy, so no
//! signature exists, not even in memory, that a restored copy of the store would not find out about.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealog_core::hex;
use sealog_core::id::Hash;
use sealog_store::StoreError;
use sealog_store::sync::lock;
use sealog_store::world::World;
use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::entry::{Entry, KeyChange, Role};
use sealog_trust::merkle::{leaf_hash, root_of};
use sealog_trust::note::{Note, SigningKey, VerifierKey};

use super::carry::INCOMPLETE;
use super::keys::{KeyError, KeyFile, Origin, new_key};
use super::reads::Signed;
use super::state_copy::{CopyError, StateCopy};
use super::store_log::{Finding, Genesis, LogKey, Place, StoreLog, TreeHead, role_name};

/// How long an old log key signs beside the new one.
pub const ROTATION_MS: u64 = 90 * 24 * 3600 * 1000;
/// The reason of a restore entry. The log is public, so it names no chain.
const LOSS_ACCEPTED: &str = "the loss of the last events of a chain was accepted";
/// Hours and days that one turn thins at most.
const THIN_STEPS: usize = 8;
/// How long to wait after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// Where heads come from: the builder of the trees.
pub trait HeadSource: Send + Sync {
    /// Builds the trees up to where the log of events is durable when this is called, and returns the heads
    /// of the chains that changed; heads that did not change may be among them. After a failed snapshot, and
    /// in a new process, the next call must return the same changes again. None while trees of existing
    /// events are still being built: no snapshot is made before they are complete.
    fn heads(&self) -> Result<Option<Vec<TreeHead>>, StoreError>;

    /// A snapshot has taken what the last call returned, so the next one need not return it again.
    fn published(&self) {}
}

/// What an operator sets about signing.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the log key is; None for a server that has none.
    pub log_key: Option<KeyFile>,
    pub service_key: Option<KeyFile>,
    /// `trust.origin`.
    pub origin: Option<String>,
    /// Host and path of `base_url`, if that was set.
    pub host: Option<String>,
    pub state_copy: Option<StateCopy>,
    pub interval_s: u64,
    pub max_delay_s: u64,
}

/// Whether this server signs, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Signing,
    /// This server has not all keys that sign. It serves what others sign.
    NoKey(String),
    /// No log was begun: `sealog trust init` does.
    NotBegun,
    /// There was a log and it is gone.
    Lost(String),
    /// The log is a copy, which may lack trees that were signed.
    Copied(String),
    /// There is proof that a larger or another tree was signed. Events are refused until an operator decides.
    RolledBack(String),
}

impl State {
    fn say(&self) {
        match self {
            State::Signing => tracing::info!("this server signs the store log"),
            State::NoKey(_) | State::NotBegun => {
                tracing::info!(state = %self, "this server does not sign the store log");
            }
            State::Lost(_) | State::Copied(_) => {
                tracing::error!(state = %self, "signing stopped; events are accepted");
            }
            State::RolledBack(_) => tracing::error!(state = %self, "signing stopped; events are rejected"),
        }
    }

    /// One word for metrics and programs.
    pub fn name(&self) -> &'static str {
        match self {
            State::Signing => "signing",
            State::NoKey(_) => "no_key",
            State::NotBegun => "not_begun",
            State::Lost(_) => "lost",
            State::Copied(_) => "copied",
            State::RolledBack(_) => "rolled_back",
        }
    }

    pub const NAMES: [&'static str; 6] = ["signing", "no_key", "not_begun", "lost", "copied", "rolled_back"];

    /// Whether an operator has to do something.
    pub fn is_trouble(&self) -> bool {
        matches!(self, State::Lost(_) | State::Copied(_) | State::RolledBack(_))
    }

    /// Whether appends have to be refused.
    pub fn refuses_events(&self) -> bool {
        matches!(self, State::RolledBack(_))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Signing => f.write_str("signing"),
            State::NoKey(why) => write!(f, "not signing: {why}"),
            State::NotBegun => f.write_str("no store log was begun; run `sealog trust init`"),
            State::Lost(why) => write!(
                f,
                "the store log is lost: {why}; restore trust/log.db, or begin a new log with `sealog trust new-log`"
            ),
            State::Copied(why) => write!(
                f,
                "not signing, since newer entries may have been signed: {why}; run `sealog trust recover`"
            ),
            State::RolledBack(why) => write!(
                f,
                "the store was rolled back: {why}; recover the entries with `sealog trust recover`, or begin a new log with `sealog trust new-log`"
            ),
        }
    }
}

/// Why a signer cannot start, or a command cannot do what it should.
#[derive(Debug)]
pub enum SignerError {
    Key(KeyError),
    Copy(CopyError),
    Store(StoreError),
    Refused(String),
}

impl fmt::Display for SignerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SignerError::Key(error) => error.fmt(f),
            SignerError::Copy(error) => error.fmt(f),
            SignerError::Store(error) => error.fmt(f),
            SignerError::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for SignerError {}

impl SignerError {
    /// Nobody has to change anything for it to work later.
    pub fn may_pass(&self) -> bool {
        use StoreError::{ControlUnavailable, Deadline, Unavailable};
        matches!(self, SignerError::Store(Unavailable(_) | ControlUnavailable(_) | Deadline))
    }
}

impl From<KeyError> for SignerError {
    fn from(error: KeyError) -> SignerError {
        SignerError::Key(error)
    }
}

impl From<CopyError> for SignerError {
    fn from(error: CopyError) -> SignerError {
        SignerError::Copy(error)
    }
}

impl From<StoreError> for SignerError {
    fn from(error: StoreError) -> SignerError {
        SignerError::Store(error)
    }
}

/// A point between two steps, where tests end a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    KeysPrepared,
    Begun,
    HeadsBuilt,
    Extended,
    Copied,
    Signed,
    Kept,
}

/// Sees the steps of a signer. A server has one that does nothing.
pub trait Probe: Send + Sync + fmt::Debug {
    /// An error ends the step there, as a crash would.
    fn reached(&self, moment: Moment) -> Result<(), StoreError> {
        let _ = moment;
        Ok(())
    }

    /// Called with each signature that is made, before anything is done with it.
    fn signed(&self, note: &Note) {
        let _ = note;
    }
}

#[derive(Debug)]
struct Silent;

impl Probe for Silent {}

/// What a turn of the signer did.
#[derive(Clone, Debug)]
pub enum Turn {
    /// It made a snapshot and signed it.
    Made { signed: Signed, findings: Vec<Finding> },
    /// Signed a tree that a crash, or a command, had left unsigned.
    CaughtUp(Signed),
    /// The next snapshot is due in so many milliseconds.
    Early(u64),
    /// Trees of existing events are still being built.
    Building,
    /// Another server made the snapshot.
    Raced,
    /// The state does not let it sign.
    Idle,
}

#[derive(Debug)]
pub struct Signer {
    log: Arc<StoreLog>,
    settings: Settings,
    world: Arc<dyn World>,
    probe: Arc<dyn Probe>,
    /// The origin that control data remembers of this store's log.
    known_origin: Option<String>,
    /// Held while the state is found out, or changed by a command.
    deciding: Mutex<()>,
    keys: Mutex<Vec<SigningKey>>,
    service_key: Mutex<Option<SigningKey>>,
    state: Mutex<State>,
    /// Whether the state copy was there. One that disappears while the server runs is not made anew.
    copy_seen: Mutex<bool>,
    /// Time of the newest signed snapshot; 0 for none.
    signed_ms: AtomicU64,
    /// By the clock that nobody sets: when the last turn made a snapshot.
    turned_ms: AtomicU64,
}

/// Figures for metrics.
#[derive(Clone, Debug)]
pub struct Figures {
    pub state: State,
    /// Time of the newest signed snapshot; 0 before the first.
    pub signed_ms: u64,
    pub interval_s: u64,
}

impl Signer {
    /// Reads the keys and finds out whether this store may sign. `known_origin` is the origin that control
    /// data remembers of this store's log. Begins a log where neither a log nor keys were ever made, and the
    /// keys are to be made here; logs what an operator has to know.
    pub fn open(
        log: Arc<StoreLog>,
        settings: Settings,
        world: Arc<dyn World>,
        known_origin: Option<&str>,
    ) -> Result<Signer, SignerError> {
        Signer::open_with(log, settings, world, known_origin, Arc::new(Silent))
    }

    /// Likewise, but begins no log: that is left to [`Signer::init`].
    pub fn look(
        log: Arc<StoreLog>,
        settings: Settings,
        world: Arc<dyn World>,
        known_origin: Option<&str>,
    ) -> Result<Signer, SignerError> {
        let signer = Signer::new(log, settings, world, known_origin, Arc::new(Silent));
        signer.look_again()?;
        Ok(signer)
    }

    /// With a probe, for tests.
    pub fn open_with(
        log: Arc<StoreLog>,
        settings: Settings,
        world: Arc<dyn World>,
        known_origin: Option<&str>,
        probe: Arc<dyn Probe>,
    ) -> Result<Signer, SignerError> {
        let signer = Signer::new(log, settings, world, known_origin, probe);
        let state = signer.look_again()?;
        let made = |file: &KeyFile| file.origin == Origin::Made;
        if state == State::NotBegun && signer.settings.log_key.as_ref().is_some_and(made) {
            signer.begin()?;
            *lock(&signer.state) = State::Signing;
        } else if state != State::Signing {
            state.say();
        } else if let Some(unknown) = signer.cannot_exclude_rollback() {
            tracing::warn!("{unknown}");
        }
        Ok(signer)
    }

    fn new(
        log: Arc<StoreLog>,
        settings: Settings,
        world: Arc<dyn World>,
        known_origin: Option<&str>,
        probe: Arc<dyn Probe>,
    ) -> Signer {
        Signer {
            log,
            settings,
            world,
            probe,
            known_origin: known_origin.map(str::to_owned),
            deciding: Mutex::default(),
            keys: Mutex::default(),
            service_key: Mutex::default(),
            state: Mutex::new(State::NotBegun),
            copy_seen: Mutex::new(false),
            signed_ms: AtomicU64::new(0),
            turned_ms: AtomicU64::new(0),
        }
    }

    /// Finds out anew whether this server signs: a log that it waits for may have begun elsewhere, or its key
    /// have come.
    pub fn look_again(&self) -> Result<State, SignerError> {
        let _deciding = lock(&self.deciding);
        let state = self.start()?;
        let before = std::mem::replace(&mut *lock(&self.state), state.clone());
        if before != State::NotBegun && before != state {
            state.say();
        }
        Ok(state)
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn state(&self) -> State {
        lock(&self.state).clone()
    }

    pub fn log(&self) -> &Arc<StoreLog> {
        &self.log
    }

    /// The key that signs everything but the store log. None for a server that does not have it.
    pub fn service_key(&self) -> Option<SigningKey> {
        lock(&self.service_key).clone()
    }

    pub fn figures(&self) -> Figures {
        let signed_ms = self.signed_ms.load(Ordering::Relaxed);
        Figures { state: self.state(), signed_ms, interval_s: self.settings.interval_s }
    }

    // ---- Start ------------------------------------------------------------------------------------------

    fn start(&self) -> Result<State, SignerError> {
        let Some(place) = self.log.place()? else { return self.start_without_log() };
        if let Some(origin) = self.settings.origin.as_ref().filter(|origin| **origin != place.origin) {
            tracing::warn!(
                %origin, log = place.origin,
                "trust.origin has no effect: the log began under another name and keeps it"
            );
        }
        self.finish_keys()?;
        self.read_keys()?;
        if let Some(why) = self.own_signature_misfits(&place)? {
            return Ok(State::RolledBack(why));
        }
        let found = self.read_copy_at_start()?;
        if let Some(why) = found.as_ref().map_or(Ok(None), |found| self.copy_misfits(&place, found))? {
            return Ok(State::RolledBack(why));
        }
        let signed = self.log.newest()?;
        if let Some(signed) = &signed {
            self.note_signed(&place, signed);
        }
        if let Err(missing) = self.signing_keys()? {
            return Ok(State::NoKey(missing));
        }
        if let Some(why) = self.log.copied()? {
            let signed_size = signed.map_or(0, |signed| signed.tree.size);
            if why == INCOMPLETE || !found.is_some_and(|found| excludes_newer(&found, &place, signed_size)) {
                return Ok(State::Copied(why));
            }
            tracing::info!(
                "the state copy shows that this copy of the store log lacks nothing that was signed"
            );
            self.log.mark_copied(None)?;
        }
        Ok(State::Signing)
    }

    fn start_without_log(&self) -> Result<State, SignerError> {
        if let Some(origin) = &self.known_origin {
            return Ok(State::Lost(format!(
                "the control data knows the log {origin}, and trust/log.db is empty"
            )));
        }
        if let Some(copy) = &self.settings.state_copy
            && let Some(known) = copy.hold()?.read()?
        {
            let Checkpoint { origin, size, .. } = known;
            return Ok(State::Lost(format!("the state copy knows {size} entries of the log {origin}")));
        }
        match &self.settings.log_key {
            Some(file) if file.origin == Origin::Made && file.read()?.is_some() => Ok(State::Lost(format!(
                "the signing key {} exists, and trust/log.db is empty",
                file.path.display()
            ))),
            Some(file) => file.read().map(|_| State::NotBegun).map_err(SignerError::Key),
            None => Ok(State::NotBegun),
        }
    }

    /// Begins the log of a store that never had one: `sealog trust init`. Makes the key files that are not
    /// there. The genesis entry is durable before a key file that was made has its name.
    pub fn init(&self) -> Result<(), SignerError> {
        let _deciding = lock(&self.deciding);
        let state = self.state();
        if state != State::NotBegun {
            return Err(SignerError::Refused(match state {
                State::Signing | State::NoKey(_) => "this store has a log already".into(),
                state => state.to_string(),
            }));
        }
        if self.settings.log_key.is_none() {
            let why =
                "name the file of the signing key in trust.log_key_file; it is created if it does not exist";
            return Err(SignerError::Refused(why.into()));
        }
        self.begin()?;
        *lock(&self.state) = State::Signing;
        Ok(())
    }

    fn begin(&self) -> Result<(), SignerError> {
        let origin = self.origin();
        let genesis = self.prepare_genesis(origin)?;
        self.probe.reached(Moment::KeysPrepared)?;
        if !self.log.begin(&genesis, self.world.now_ms(), None)? {
            return Err(SignerError::Refused("another server began the store log; start again".into()));
        }
        self.probe.reached(Moment::Begun)?;
        self.finish_keys()?;
        self.read_keys()?;
        // Only this first checkpoint is signed without a look at what was signed before.
        self.sign()?;
        let keys = self.log.keys()?;
        let vkey = keys.iter().find(|key| key.role == Role::Log).map(|key| key.key.to_string());
        tracing::info!(
            vkey = vkey.unwrap_or_default(),
            "began the store log; give this vkey to your auditor, on another way than this server: it is what checkpoints and proofs are verified with"
        );
        Ok(())
    }

    /// Begins another log that names the previous one: `sealog trust new-log`. Verifiers need the new vkey.
    /// The state copy is replaced, because it is of the previous log.
    pub fn new_log(&self) -> Result<Place, SignerError> {
        let _deciding = lock(&self.deciding);
        let before = self.log.place()?;
        let Some(file) = &self.settings.log_key else {
            return Err(SignerError::Refused(
                "name the file of the signing key in trust.log_key_file".into(),
            ));
        };
        let mut origin = self.settings.origin.clone().unwrap_or_else(|| self.random_origin());
        let known = before.as_ref().map(|place| place.origin.as_str()).or(self.known_origin.as_deref());
        if known == Some(&origin) || self.log.was_before(&origin)? {
            origin = self.random_origin();
        }
        let genesis = self.make_genesis(origin, true)?;
        self.probe.reached(Moment::KeysPrepared)?;
        if !self.log.begin(&genesis, self.world.now_ms(), before.as_ref())? {
            return Err(moved());
        }
        self.probe.reached(Moment::Begun)?;
        self.finish_keys()?;
        self.read_keys()?;
        if let Some(copy) = &self.settings.state_copy {
            let place = self.known_place()?;
            copy.hold()?.write(&checkpoint(&place))?;
            *lock(&self.copy_seen) = true;
        }
        *lock(&self.state) = State::Signing;
        self.sign()?;
        tracing::warn!(key = %file.path.display(), "began a new store log; give its vkey to those who verify");
        self.known_place()
    }

    /// Takes the entries that a rollback lost from another copy of the log, then declares the restore:
    /// `sealog trust recover`. `note` is a checkpoint of this log, with its signature, and `entries` are all
    /// entries of its tree. Nothing is changed unless they begin with the entries here and lead to that tree.
    pub fn recover(&self, note: &[u8], entries: &[Vec<u8>], reason: &str) -> Result<(), SignerError> {
        let _deciding = lock(&self.deciding);
        let refused = |why: &str| SignerError::Refused(why.to_owned());
        check_reason(reason)?;
        self.refuse_incomplete()?;
        let place = self.known_place()?;
        if let Err(missing) = self.signing_keys()? {
            return Err(refused(&missing));
        }
        let parsed = Note::parse(note).map_err(|error| refused(&error.to_string()))?;
        let found = Checkpoint::parse(parsed.text()).map_err(|error| refused(&error.to_string()))?;
        let keys = self.log.keys()?;
        let keys: Vec<&VerifierKey> =
            keys.iter().filter(|key| key.role == Role::Log).map(|key| &key.key).collect();
        if found.origin != place.origin || parsed.verify(&keys).is_err() {
            return Err(refused("the checkpoint is not signed by a key of this log"));
        }
        let leaves: Vec<Hash> = entries.iter().map(|entry| leaf_hash(entry)).collect();
        let ours = usize::try_from(place.tree.size).unwrap_or(usize::MAX);
        let (Some(known), Some(missing)) = (leaves.get(..ours), entries.get(ours..)) else {
            return Err(refused("the other copy has fewer entries than this one"));
        };
        if root_of(&leaves) != found.root || leaves.len() as u64 != found.size {
            return Err(refused("the entries do not lead to the checkpoint's tree"));
        }
        if root_of(known) != place.tree.root {
            return Err(refused(
                "the other copy is not a continuation of this log; begin a new one with `sealog trust new-log`",
            ));
        }
        // Whoever appends to less than what was signed makes a log that no copy continues any more.
        if let Some(copy) = &self.settings.state_copy
            && let Some(signed) = copy.hold()?.read()?
            && signed.origin == place.origin
        {
            let begin = usize::try_from(signed.size).ok().and_then(|size| leaves.get(..size));
            if begin.is_none_or(|begin| root_of(begin) != signed.root) {
                let Checkpoint { size, .. } = found;
                return Err(SignerError::Refused(format!(
                    "the state copy has {} entries, and the other copy, with {size}, does not have the same",
                    signed.size
                )));
            }
        }
        self.log.append_copied(&place, missing)?.ok_or_else(moved)?;
        self.declare_and_sign(reason)
    }

    /// Goes on from a copied log as it is: `sealog trust recover --nothing-newer`. The operator answers for
    /// it that nothing was signed after the copy was made, and the log says so in public.
    pub fn accept_copy(&self, reason: &str) -> Result<(), SignerError> {
        let _deciding = lock(&self.deciding);
        check_reason(reason)?;
        self.refuse_incomplete()?;
        // What the state copy proves is found out anew: no word of an operator replaces it.
        let state = self.start()?;
        if !matches!(state, State::Copied(_)) {
            let why = format!("the log is not a copy that waits for this: {state}");
            *lock(&self.state) = state;
            return Err(SignerError::Refused(why));
        }
        self.declare_and_sign(reason)
    }

    /// The last step of a recovery.
    fn declare_and_sign(&self, reason: &str) -> Result<(), SignerError> {
        let place = self.known_place()?;
        self.log.declare_restore(&place, reason, None, self.world.now_ms())?.ok_or_else(moved)?;
        self.log.mark_copied(None)?;
        *lock(&self.state) = State::Signing;
        self.sign().map(drop)
    }

    fn refuse_incomplete(&self) -> Result<(), SignerError> {
        match self.log.copied()? {
            Some(why) if why == INCOMPLETE => Err(SignerError::Refused(why)),
            _ => Ok(()),
        }
    }

    /// Says in the log that a chain goes on shorter, since the loss of its last events was accepted. The next
    /// snapshot publishes this head.
    pub fn declare_loss(&self, head: &TreeHead) -> Result<(), SignerError> {
        let place = self.known_place()?;
        let declared = self.log.declare_restore(&place, LOSS_ACCEPTED, Some(head), self.world.now_ms())?;
        declared.ok_or_else(|| SignerError::Refused("the store log moved on meanwhile".into()))?;
        self.sign().map(drop)
    }

    fn origin(&self) -> String {
        let Settings { origin, host, .. } = &self.settings;
        let of_host = || host.as_ref().map(|host| format!("{host}/tlog/v1/store"));
        origin.clone().or_else(of_host).unwrap_or_else(|| self.random_origin())
    }

    fn random_origin(&self) -> String {
        let mut id = [0; 16];
        self.world.fill_random(&mut id);
        format!("sealog/{}", hex::encode(&id))
    }

    fn prepare_genesis(&self, origin: String) -> Result<Genesis, SignerError> {
        self.make_genesis(origin, false)
    }

    /// Prepares the key files that are missing, or all with new keys.
    fn make_genesis(&self, origin: String, anew: bool) -> Result<Genesis, SignerError> {
        let mut keys = Vec::new();
        for (role, file) in self.files() {
            let name = key_name(&origin, role);
            let given = if anew { None } else { file.read()? };
            let key = match given {
                Some(given) => {
                    let key = given.last().expect("a key file has a key").public().clone();
                    if key.name() != name {
                        return Err(SignerError::Refused(format!(
                            "the key in {} has the name {}, and the {} key of this log must have the name {name}; set trust.origin, or remove the file to have a key made",
                            file.path.display(),
                            key.name(),
                            role_name(role)
                        )));
                    }
                    key
                }
                None => {
                    let made = new_key(&name, &*self.world)
                        .map_err(|_| SignerError::Refused(format!("`{name}` cannot be an origin: it must not be empty and must have no white space and no `+`")))?;
                    file.prepare(std::slice::from_ref(&made))?;
                    made.public().clone()
                }
            };
            keys.push((role, key));
        }
        let mut blind = [0; 32];
        self.world.fill_random(&mut blind);
        let Settings { interval_s, max_delay_s, .. } = self.settings;
        Ok(Genesis { origin, interval_s, max_delay_s, keys, blind })
    }

    fn files(&self) -> impl Iterator<Item = (Role, &KeyFile)> {
        let Settings { log_key, service_key, .. } = &self.settings;
        let log = log_key.iter().map(|file| (Role::Log, file));
        log.chain(service_key.iter().map(|file| (Role::Service, file)))
    }

    /// Gives files their names whose keys the log has by now: a crash came between.
    fn finish_keys(&self) -> Result<(), SignerError> {
        let known = self.log.keys()?;
        for (role, file) in self.files() {
            let Some(prepared) = file.read_unfinished()? else { continue };
            let newest = prepared.last().map(SigningKey::public);
            let is_known = |key: &LogKey| {
                key.role == role
                    && key.retired.is_none()
                    && newest.is_some_and(|newest| key.key.is_same_id(newest))
            };
            if known.iter().any(is_known) {
                file.finish()?;
            }
        }
        Ok(())
    }

    fn read_keys(&self) -> Result<(), SignerError> {
        let (mut log, mut service) = (Vec::new(), Vec::new());
        for (role, file) in self.files() {
            let read = file.read()?.unwrap_or_default();
            match role {
                Role::Log => log = read,
                Role::Service => service = read,
            }
        }
        *lock(&self.keys) = log;
        *lock(&self.service_key) = service.pop();
        Ok(())
    }

    /// The keys that sign now, or which one is missing here.
    fn signing_keys(&self) -> Result<Result<Vec<SigningKey>, String>, SignerError> {
        let held = lock(&self.keys).clone();
        let mut keys = Vec::new();
        for active in self.active(Role::Log)? {
            match held.iter().find(|key| key.public().is_same_id(&active.key)) {
                Some(key) => keys.push(key.clone()),
                None => return Ok(Err(format!("this server does not have the log key {}", active.key))),
            }
        }
        Ok(if keys.is_empty() { Err("the log has no log key".into()) } else { Ok(keys) })
    }

    fn active(&self, role: Role) -> Result<Vec<LogKey>, SignerError> {
        let keys = self.log.keys()?;
        Ok(keys.into_iter().filter(|key| key.role == role && key.retired.is_none()).collect())
    }

    // ---- Rollback ---------------------------------------------------------------------------------------

    /// Why the newest own checkpoint does not fit the log.
    fn own_signature_misfits(&self, place: &Place) -> Result<Option<String>, SignerError> {
        let Some(signed) = self.log.newest()? else { return Ok(None) };
        self.misfits(place, signed.note.as_bytes())
    }

    /// Why a checkpoint with a valid signature of this log is proof of a rollback. None if it fits, or if
    /// no key of this log signed it.
    pub fn misfits(&self, place: &Place, note: &[u8]) -> Result<Option<String>, SignerError> {
        let malformed = |error: String| SignerError::Refused(format!("the checkpoint is malformed: {error}"));
        let note = Note::parse(note).map_err(|error| malformed(error.to_string()))?;
        let found = Checkpoint::parse(note.text()).map_err(|error| malformed(error.to_string()))?;
        let keys = self.log.keys()?;
        let keys: Vec<&VerifierKey> =
            keys.iter().filter(|key| key.role == Role::Log).map(|key| &key.key).collect();
        if found.origin != place.origin || note.verify(&keys).is_err() {
            return Ok(None);
        }
        self.differs(place, &found)
    }

    fn differs(&self, place: &Place, found: &Checkpoint) -> Result<Option<String>, SignerError> {
        Ok(match self.log.root_at(place.log, place.tree, found.size)? {
            None => Some(format!("{} entries were signed, and the log has {}", found.size, place.tree.size)),
            Some(root) if root != found.root => {
                Some(format!("another tree of {} entries was signed", found.size))
            }
            Some(_) => None,
        })
    }

    fn read_copy_at_start(&self) -> Result<Option<Checkpoint>, SignerError> {
        let Some(copy) = &self.settings.state_copy else { return Ok(None) };
        let found = copy.hold()?.read()?;
        *lock(&self.copy_seen) |= found.is_some();
        Ok(found)
    }

    /// Why nobody can know whether this store was rolled back. A server that does not sign knows nothing of
    /// it and has nothing to say.
    pub fn cannot_exclude_rollback(&self) -> Option<String> {
        const UNKNOWN: &str = "a rollback of the store could not be excluded";
        if self.state() != State::Signing || *lock(&self.copy_seen) {
            return None;
        }
        Some(match &self.settings.state_copy {
            None => format!("{UNKNOWN}: set trust.state_copy to a file outside of the backups"),
            Some(copy) => {
                format!("{UNKNOWN}: the state copy {} was missing; it is made anew", copy.path().display())
            }
        })
    }

    fn copy_misfits(&self, place: &Place, found: &Checkpoint) -> Result<Option<String>, SignerError> {
        if found.origin != place.origin {
            let Checkpoint { origin, size, .. } = found;
            // Another server began a new log: this one's keys signed nothing of the one before.
            if self.log.was_before(origin)? {
                return Ok(None);
            }
            return Ok(Some(format!("the state copy has {size} entries of the log {origin}")));
        }
        let why = self.differs(place, found)?;
        Ok(why.map(|why| format!("the state copy says that {why}")))
    }

    /// Stops signing on proof of a rollback.
    fn roll_back(&self, why: String) -> SignerError {
        let state = State::RolledBack(why);
        tracing::error!(%state, "signing stopped; events are rejected");
        let message = state.to_string();
        *lock(&self.state) = state;
        SignerError::Refused(message)
    }

    // ---- Signing ----------------------------------------------------------------------------------------

    fn known_place(&self) -> Result<Place, SignerError> {
        let gone = || SignerError::Refused("the store log is empty".into());
        self.log.place()?.ok_or_else(gone)
    }

    /// Signs the tree of the log as it is now, if it is not signed yet.
    fn sign(&self) -> Result<Signed, SignerError> {
        // Before the tree is read: what another signer has put into the copy is in the log by then.
        let held = self.settings.state_copy.as_ref().map(StateCopy::hold).transpose()?;
        let place = self.known_place()?;
        let keys = match self.signing_keys()? {
            Ok(keys) => keys,
            Err(missing) => {
                *lock(&self.state) = State::NoKey(missing.clone());
                return Err(SignerError::Refused(missing));
            }
        };
        if let Some(held) = &held {
            match held.read()? {
                Some(found) => {
                    if let Some(why) = self.copy_misfits(&place, &found)? {
                        return Err(self.roll_back(why));
                    }
                }
                None if *lock(&self.copy_seen) => {
                    let why = "the state copy disappeared while the server ran; restore it, or restart the server to create it anew";
                    return Err(SignerError::Refused(why.into()));
                }
                None => {}
            }
        }
        if let Some(signed) = self.log.checkpoint_of(place.log, place.tree.size)? {
            self.note_signed(&place, &signed);
            return Ok(signed);
        }
        if let Some(why) = self.own_signature_misfits(&place)? {
            return Err(self.roll_back(why));
        }
        let checkpoint = checkpoint(&place);
        if let Some(held) = &held {
            held.write(&checkpoint)?;
            *lock(&self.copy_seen) = true;
        }
        self.probe.reached(Moment::Copied)?;
        let note = checkpoint.sign(&keys.iter().collect::<Vec<_>>());
        let note = note.ok_or_else(|| SignerError::Refused("the origin has control characters".into()))?;
        self.probe.signed(&note);
        self.probe.reached(Moment::Signed)?;
        let signed = Signed { tree: place.tree, note: note.to_string() };
        self.log.keep_checkpoint(place.log, place.tree.size, &signed.note)?;
        self.note_signed(&place, &signed);
        self.probe.reached(Moment::Kept)?;
        Ok(signed)
    }

    fn note_signed(&self, place: &Place, signed: &Signed) {
        if place.heads_index.is_some_and(|index| index < signed.tree.size) {
            self.signed_ms.store(place.heads_ms, Ordering::Relaxed);
        }
    }

    /// Makes a snapshot if one is due. Blocks.
    pub fn turn(&self, source: &dyn HeadSource) -> Result<Turn, SignerError> {
        if !matches!(self.state(), State::Signing) {
            return Ok(Turn::Idle);
        }
        let place = self.known_place()?;
        if self.log.checkpoint_of(place.log, place.tree.size)?.is_none() {
            return self.sign().map(Turn::CaughtUp);
        }
        // Read before the builder asks how far the log of events is durable.
        let now_ms = self.world.now_ms();
        if let Some(early) = self.early(&place, now_ms) {
            return Ok(Turn::Early(early));
        }
        if let Some(retired) = self.retire(&place, now_ms)? {
            return Ok(retired);
        }
        let Some(heads) = source.heads()? else { return Ok(Turn::Building) };
        self.probe.reached(Moment::HeadsBuilt)?;
        let made = self.log.snapshot(&place, now_ms, &heads)?;
        self.turned_ms.store(self.world.boot_ms(), Ordering::Relaxed);
        let Some(snapshot) = made else { return Ok(Turn::Raced) };
        source.published();
        for finding in &snapshot.findings {
            tracing::error!(%finding, "a chain does not continue what was published; it is not published any more");
        }
        self.probe.reached(Moment::Extended)?;
        let signed = self.sign()?;
        // Each snapshot makes one more to thin; a few steps also catch up with what was left.
        for _ in 0..THIN_STEPS {
            if !self.log.thin(now_ms)? {
                break;
            }
        }
        Ok(Turn::Made { signed, findings: snapshot.findings })
    }

    /// How long it is until the next snapshot is due.
    fn early(&self, place: &Place, now_ms: u64) -> Option<u64> {
        place.heads_index?;
        let interval_ms = self.settings.interval_s.saturating_mul(1000);
        // A clock that was set back says nothing about how long ago the last one was.
        let since_ms = now_ms.checked_sub(place.heads_ms);
        let turned_ms = self.turned_ms.load(Ordering::Relaxed);
        let since_ms = since_ms.unwrap_or_else(|| self.world.boot_ms().saturating_sub(turned_ms));
        Some(interval_ms.saturating_sub(since_ms)).filter(|early_ms| *early_ms > 0)
    }

    // ---- Rotation ---------------------------------------------------------------------------------------

    /// Makes a new key of a role: an `add` entry, which the old log key signs. A log key signs beside the old
    /// one for 90 days; a service key replaces the old one at once.
    pub fn rotate(&self, role: Role) -> Result<VerifierKey, SignerError> {
        let state = self.state();
        if state != State::Signing {
            return Err(SignerError::Refused(state.to_string()));
        }
        let file = self.files().find(|(of, _)| *of == role).map(|(_, file)| file);
        let Some(file) = file else {
            return Err(SignerError::Refused(format!("this server has no {} key", role_name(role))));
        };
        let place = self.known_place()?;
        let active = self.active(role)?;
        if role == Role::Log && active.len() > 1 {
            let why = "a rotation of the log key is under way; the old key is retired 90 days after it began";
            return Err(SignerError::Refused(why.into()));
        }
        let held = file.read()?.unwrap_or_default();
        let of_active = |key: &SigningKey| active.iter().any(|active| active.key.is_same_id(key.public()));
        let mut keys: Vec<SigningKey> =
            held.into_iter().filter(|key| role == Role::Log && of_active(key)).collect();
        let name = key_name(&place.origin, role);
        let made = new_key(&name, &*self.world).map_err(|error| SignerError::Refused(error.to_string()))?;
        let public = made.public().clone();
        keys.push(made);
        file.prepare(&keys)?;
        self.probe.reached(Moment::KeysPrepared)?;
        let now_ms = self.world.now_ms();
        self.log.change_key(&place, KeyChange::Add, role, &public, now_ms)?.ok_or_else(moved)?;
        self.probe.reached(Moment::Begun)?;
        file.finish()?;
        self.read_keys()?;
        if role == Role::Service {
            for old in &active {
                let place = self.known_place()?;
                self.log.change_key(&place, KeyChange::Retire, role, &old.key, now_ms)?.ok_or_else(moved)?;
            }
        }
        self.sign()?;
        Ok(public)
    }

    /// Retires a log key whose successor has signed beside it for long enough.
    fn retire(&self, place: &Place, now_ms: u64) -> Result<Option<Turn>, SignerError> {
        let active = self.active(Role::Log)?;
        let [old, .., new] = &active[..] else { return Ok(None) };
        if now_ms < new.added_ms.saturating_add(ROTATION_MS) {
            return Ok(None);
        }
        match self.log.change_key(place, KeyChange::Retire, Role::Log, &old.key, now_ms)? {
            None => Ok(Some(Turn::Raced)),
            Some(_) => {
                tracing::info!(vkey = %old.key, "retired a log key; remove its line from the key file");
                self.sign().map(|signed| Some(Turn::CaughtUp(signed)))
            }
        }
    }

    // ---- The loop ---------------------------------------------------------------------------------------

    /// Makes a snapshot if one is due, and returns how long to wait for the next turn. Blocks.
    pub fn step(&self, source: &dyn HeadSource) -> Duration {
        let interval = Duration::from_secs(self.settings.interval_s);
        match self.turn(source) {
            Ok(Turn::Early(ms)) => Duration::from_millis(ms),
            Ok(Turn::CaughtUp(_)) => Duration::ZERO,
            Ok(Turn::Made { .. }) => Duration::from_millis(1).max(self.until_due(interval)),
            Ok(Turn::Building | Turn::Raced | Turn::Idle) => RETRY.min(interval),
            Err(SignerError::Store(StoreError::Closing)) => RETRY,
            Err(error) => {
                tracing::error!(%error, "cannot sign the store log; retrying");
                RETRY
            }
        }
    }

    fn until_due(&self, interval: Duration) -> Duration {
        let since = self.world.now_ms().saturating_sub(self.signed_ms.load(Ordering::Relaxed));
        interval.saturating_sub(Duration::from_millis(since))
    }
}

fn moved() -> SignerError {
    SignerError::Refused("the store log moved on meanwhile; try again".into())
}

/// It becomes a line of an entry.
fn check_reason(reason: &str) -> Result<(), SignerError> {
    match (Entry::Restore { time_ms: 0, index: 0, reason: reason.to_owned() }).to_text() {
        Some(_) => Ok(()),
        None => Err(SignerError::Refused("the reason must be one line of printable text".into())),
    }
}

/// Whether a state copy that fits the log proves that no larger tree was signed. One that has less than what
/// the log shows as signed is not the copy that its signer wrote: a file that was left on another machine.
fn excludes_newer(found: &Checkpoint, place: &Place, signed_size: u64) -> bool {
    found.origin == place.origin && found.size >= signed_size
}

fn checkpoint(place: &Place) -> Checkpoint {
    Checkpoint { origin: place.origin.clone(), size: place.tree.size, root: place.tree.root }
}

/// The name of a key: that of the log, or of its service key.
pub fn key_name(origin: &str, role: Role) -> String {
    match role {
        Role::Log => origin.to_owned(),
        Role::Service => format!("{origin}/service"),
    }
}
