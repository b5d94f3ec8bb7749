//! What the signed log of the store has of a chain, where the chain is shown.

use std::sync::Arc;

use sealog_core::id::{ChainId, Mode};
use sealog_core::reject::Code;
use sealog_engine::Trust;
use sealog_engine::proofs::NotProven;

use crate::app::Dashboard;
use crate::place::is_window;
use crate::problem::Problem;
use crate::request::Asked;
use crate::text::moment;

/// The signed log, for who may see the whole chain: a proof tells how many events there are.
pub(crate) fn log_of<'a>(app: &'a Dashboard, asked: &Asked, chain: ChainId) -> Option<&'a Arc<Trust>> {
    let sees_all = !is_window(&asked.place().membership.grants);
    app.service.trust().filter(|_| chain.mode == Mode::Live && sees_all)
}

/// The newest snapshot that has something of a chain.
pub(crate) enum Newest {
    /// Up to this number, at this time.
    Has(u64, String),
    Nothing,
    /// The log says why.
    Unreadable,
}

impl Newest {
    /// A page is shown also where the signed log cannot be read.
    pub(crate) async fn of(trust: &Trust, chain: ChainId) -> Newest {
        match trust.published_head(chain.into(), chain).await {
            Ok(Some(head)) => Newest::Has(head.size, moment(head.time_ms)),
            Ok(None) => Newest::Nothing,
            Err(error) => {
                tracing::error!(%error, "cannot read the signed log for a page");
                Newest::Unreadable
            }
        }
    }
}

/// Why there is no proof.
pub(crate) fn problem(error: NotProven) -> Problem {
    match error {
        NotProven::NotYet => Problem::new(
            Code::TlogNotYet,
            "The signed log does not have this event yet. Try again in a minute.",
        ),
        NotProven::Store(error) => error.into(),
        error @ (NotProven::Unknown | NotProven::Pruned { .. } | NotProven::Broken(_)) => {
            tracing::error!(?error, "a proof could not be made");
            Problem::new(Code::ReadQueryFailed, "The server could not make the proof. Ask the operator.")
        }
    }
}
