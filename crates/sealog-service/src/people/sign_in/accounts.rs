//! What signing in builds on, and where the kinds of accounts differ.

use std::net::IpAddr;
use std::sync::Arc;

use sealog_control::{Account, Control, NewNotice, Room, Session, Wrong};
use sealog_core::id::Hash;
use sealog_store::StoreError;
use sealog_store::world::World;

use super::counts::SignInCounts;
use super::refused::Refused;
use super::token::Token;
use crate::people::password::Asks;

/// Accounts of one kind that come through a browser.
#[derive(Clone)]
pub struct Accounts<K> {
    pub control: Arc<Control>,
    pub world: Arc<dyn World>,
    pub kind: K,
    /// For the metrics.
    pub counts: Arc<SignInCounts>,
    pub(super) refused: Arc<Refused>,
}

impl<K: Kind> Accounts<K> {
    pub fn new(
        kind: K,
        control: Arc<Control>,
        world: Arc<dyn World>,
        counts: Arc<SignInCounts>,
    ) -> Accounts<K> {
        Accounts { control, world, kind, counts, refused: Arc::default() }
    }
}

/// A kind of account: where it differs from others when it signs in.
pub trait Kind: Clone + Send + Sync + 'static {
    type Account: Account;
    /// An account that has a session, with what its pages need to know of it.
    type Who: Send + Sync;
    /// Begins the name of every count of attempts: those of one kind never count for another.
    const ATTEMPTS: &'static str;
    /// How a browser that is not known waits for its password to be checked.
    const STRANGER: Asks;

    fn session(who: &Self::Who) -> &Session<Self::Account>;
    fn account(who: &Self::Who) -> &Self::Account;

    /// What a session of this account may be, if it begins now.
    fn terms(
        accounts: &Accounts<Self>,
        id: <Self::Account as Account>::Id,
    ) -> impl Future<Output = Result<Terms, Failed>> + Send;

    /// Whose session it is. None if it has to end now, whatever it was granted when it began.
    fn who(
        accounts: &Accounts<Self>,
        session: Session<Self::Account>,
        account: Self::Account,
    ) -> impl Future<Output = Result<Option<Self::Who>, Failed>> + Send;

    /// An attempt was wrong. Without an account the address is not known.
    fn failed(accounts: &Accounts<Self>, account: Option<&Self::Account>, what: Wrong, visitor: &Visitor);

    /// A whole session has begun. No browser has its token before this returns.
    fn signed_in(
        accounts: &Accounts<Self>,
        account: &Self::Account,
        with_code: bool,
        visitor: &Visitor,
    ) -> impl Future<Output = Result<(), Failed>> + Send;

    /// The mail about a browser that is new to the account, if this kind gets one.
    fn new_browser_notice(_: &Self::Account, _: Hash, _now_ms: u64, _: &Visitor) -> Option<NewNotice> {
        None
    }
}

/// How long a session lasts, and what it may use of a full disk.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Without being used.
    pub idle_ms: u64,
    /// In all.
    pub lasts_ms: u64,
    pub room: Room,
}

/// Where a request comes from, as far as the server can tell.
#[derive(Clone, Debug)]
pub struct Visitor {
    pub address: IpAddr,
    pub user_agent: Option<String>,
}

/// A browser that signs in, with what it has kept of earlier sign-ins.
#[derive(Clone, Debug)]
pub struct Browser {
    pub visitor: Visitor,
    pub session: Option<Token>,
    pub device: Option<Token>,
}

/// What a browser keeps of a whole sign-in.
#[derive(Clone, Debug)]
pub struct Kept {
    pub session: Token,
    /// The browser is known again by it. It opens nothing.
    pub device: Token,
}

/// A failure that is ours. What it says is for the log.
#[derive(Clone, Debug)]
pub struct Failed(pub StoreError);

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        Failed(error)
    }
}

impl From<String> for Failed {
    fn from(cause: String) -> Failed {
        Failed(StoreError::Refused(cause))
    }
}
