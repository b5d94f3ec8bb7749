//! What a request is told once its fate is known.

use sealog_core::chain::Head;
use sealog_core::id::Ulid;
use tokio::sync::oneshot;

use crate::append::{Appended, Receipt, Reservation};
use crate::error::StoreError;

pub(crate) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// What is said once a request is durable.
#[derive(Debug)]
pub(crate) enum Outcome {
    Append { receipt: Receipt, idempotency: Option<Box<(Reservation, Ulid)>>, answer: Answer<Appended> },
    Import { answer: Answer<Head> },
    AcceptLoss { receipt: Receipt, answer: Answer<Receipt> },
}

impl Outcome {
    pub(crate) fn succeed(self, head: Head) {
        match self {
            Outcome::Append { receipt, idempotency, answer } => {
                // The key is in the index by now, so it may leave the set of those in flight.
                drop(idempotency);
                drop(answer.send(Ok(Appended::Sealed(receipt))));
            }
            Outcome::Import { answer } => drop(answer.send(Ok(head))),
            Outcome::AcceptLoss { receipt, answer } => drop(answer.send(Ok(receipt))),
        }
    }

    pub(crate) fn fail(self, error: StoreError) {
        match self {
            Outcome::Append { answer, idempotency, .. } => {
                // The key first: whoever hears of the failure may try again at once.
                drop(idempotency);
                drop(answer.send(Err(error)));
            }
            Outcome::Import { answer } => drop(answer.send(Err(error))),
            Outcome::AcceptLoss { answer, .. } => drop(answer.send(Err(error))),
        }
    }
}
