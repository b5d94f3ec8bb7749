//! Administrative commands: one function does what a command asks, and two carriers bring it there.
//!
//! While a server runs, the store is the server's, and a command goes to it through a Unix socket in the data directory
//! ([`socket`]). While none runs, the command opens the store itself ([`client`]). Both call [`administer`].
//!
//! A new command is a variant of [`Request`] and of [`Answer`], and an arm of [`administer`].

mod client;
mod protocol;
mod socket;

use sealog_control::Control;
use sealog_store::Store;
use serde::{Deserialize, Serialize};

pub(crate) use client::run;
pub(crate) use socket::AdminSocket;

use crate::accept_loss;

/// What an operator can ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    AcceptLoss(accept_loss::Request),
}

impl Request {
    /// For the log.
    fn name(&self) -> &'static str {
        match self {
            Request::AcceptLoss(_) => "accept-loss",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    AcceptLoss(accept_loss::Accepted),
}

/// Does what a command asks. An error is a text for the operator.
async fn administer(store: &dyn Store, control: &Control, request: Request) -> Result<Answer, String> {
    match request {
        Request::AcceptLoss(request) => {
            accept_loss::accept(store, control, &request).await.map(Answer::AcceptLoss)
        }
    }
}
