//! What administrative commands can ask for, and the one function that does it.

use sealog_control::Control;
use sealog_store::Store;
use serde::{Deserialize, Serialize};

use super::loss;

/// What an operator can ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    AcceptLoss(loss::Request),
}

impl Request {
    /// For the log.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Request::AcceptLoss(_) => "accept-loss",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    AcceptLoss(loss::Accepted),
}

/// Does what a command asks. An error is a text for the operator.
pub(super) async fn administer(
    store: &dyn Store,
    control: &Control,
    request: Request,
) -> Result<Answer, String> {
    match request {
        Request::AcceptLoss(request) => loss::accept(store, control, &request).await.map(Answer::AcceptLoss),
    }
}
