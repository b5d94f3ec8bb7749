//! A kind of job.

use sealog_control::{Job, NewRecord};
use sealog_store::{BoxFuture, StoreError};

/// Knows how to do jobs of one kind.
pub trait Work: Send + Sync {
    /// By which its jobs are found.
    fn kind(&self) -> &'static str;

    /// Whether a job that was begun keeps something in memory that another node would have to make again. It
    /// stays with its node when it gives way; only a node that ends hands it on.
    fn stays(&self) -> bool {
        false
    }

    /// Does the next piece of a job: about a second of work at most, and away from the event loop. `position`
    /// is what the piece before it returned, empty at the beginning. It may be dropped wherever it waits, and
    /// may be done twice: a position that could not be kept is done again by whoever has the job then.
    fn step<'a>(&'a self, job: &'a Job, position: &'a [u8]) -> BoxFuture<'a, Result<Step, StoreError>>;
}

/// What a piece of a job has come to.
#[derive(Debug)]
pub enum Step {
    /// There is more, from here.
    More(Vec<u8>),
    /// That was the last one. The records go into the system chain of the job's tenant.
    Done { position: Vec<u8>, records: Vec<NewRecord> },
    /// It cannot be done, now or later.
    Failed { cause: String, records: Vec<NewRecord> },
}
