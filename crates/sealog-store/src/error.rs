//! Why a store could not do what it was asked for.

use std::fmt;

use sealog_core::id::ChainId;

/// A failure that is not the client's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// A write or sync failed. Appends stay refused until the process is started again; reads go on.
    Poisoned(String),
    /// There is no room for another segment. Appends resume by themselves when there is.
    NoRoom,
    /// Too much is waiting to be written.
    QueueFull,
    /// The disk has not finished a write for so long that requests fail by their deadline. Appends resume by
    /// themselves when it does.
    Stalled,
    /// The request waited too long for its turn and was not written.
    Deadline,
    /// The database cannot be reached, refuses or did not answer. Whether the request was written is unknown;
    /// appends resume by themselves.
    Unavailable(String),
    /// The chain's last events are known to be lost or damaged, so nothing can be sealed on top of them.
    HeadUnproven { chain: ChainId },
    /// The clock has leapt forward, and the setting `clock.strict` refuses to believe it. Appends resume by
    /// themselves when it is set right.
    ClockLeapt,
    /// A copy of this store was promoted, which now has the chains. Appends stay refused, also after a start;
    /// reads go on.
    Superseded { epoch: u64 },
    /// The signed log proves that this store was rolled back. Appends are refused until an operator has
    /// decided what becomes of the log; reads go on. The text says why.
    RolledBack(String),
    /// The store is closing.
    Closing,
    /// A request that the store cannot hold, events that do not continue their chain, or a position that is
    /// not of this feed.
    Refused(String),
    /// The record of this event is damaged.
    Damaged { chain_seq: u64 },
    /// Reading failed.
    Read(String),
    /// A change of control data was not made, because the tenant's would take more of the disk than it may.
    TenantFull { mb: u64 },
    /// A change of control data failed and was not made, or is not known to have been made.
    Control(String),
    /// Control data cannot be reached, whatever holds of events. Nothing was changed.
    ControlUnavailable(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Poisoned(cause) => write!(
                f,
                "an earlier write to the store failed ({cause}); it rejects events until it restarts"
            ),
            StoreError::NoRoom => f.write_str("the disk has no space for another segment"),
            StoreError::QueueFull => f.write_str("too many events are waiting to be written"),
            StoreError::Stalled => {
                f.write_str("the disk has not finished a write for seconds; events wait or are rejected")
            }
            StoreError::Deadline => f.write_str("the event waited too long to be written"),
            StoreError::Unavailable(cause) => write!(f, "the database is unavailable: {cause}"),
            StoreError::HeadUnproven { chain } => write!(
                f,
                "the last events of chain {chain} are lost or damaged; it rejects new events"
            ),
            StoreError::ClockLeapt => f.write_str(
                "the clock jumped forward by more than an hour and clock.strict is set; correct the clock, or restart the server if the clock is right",
            ),
            StoreError::Superseded { epoch } => write!(
                f,
                "this server is no longer the primary: its peer has epoch {epoch}, from a later promotion. It rejects events; send them to the peer"
            ),
            StoreError::RolledBack(why) => f.write_str(why),
            StoreError::Closing => f.write_str("the store is shutting down"),
            StoreError::Refused(why) => f.write_str(why),
            StoreError::TenantFull { mb } => write!(
                f,
                "the account data of the organisation would take more than the {mb} MB that this server allows (limits.tenant_disk_mb)"
            ),
            StoreError::Damaged { chain_seq } => write!(f, "the record of event {chain_seq} is damaged"),
            StoreError::Read(cause) => write!(f, "a read failed: {cause}"),
            StoreError::Control(cause) => write!(f, "failed to change the control data: {cause}"),
            StoreError::ControlUnavailable(cause) => write!(f, "the control data is unavailable: {cause}"),
        }
    }
}

impl std::error::Error for StoreError {}
