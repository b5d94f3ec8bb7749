//! `/tlog/v1/…`: what the store publishes, for those who check it without trusting it. Spec 10.1. Formats and
//! proofs are those of `sealog-trust`; here they get paths, status codes and headers.

mod chain;
mod leaves;
mod proof;
mod published;
mod store;

use hyper::http::request::Parts;
use sealog_core::id::RequestId;
use sealog_core::reject::Reject;
use sealog_store::pool::Payer;

use crate::app::App;
use crate::respond::Answer;
use crate::tlog_routes::Operation;
use chain::Chain;
use published::Published;

pub(crate) async fn get(
    app: &App,
    operation: Operation,
    parameters: &[&str],
    parts: &Parts,
    request_id: RequestId,
) -> Answer {
    let trust = app.service.trust().ok_or(Reject::PathNotFound)?;
    let (query, tile) = (parts.uri.query().unwrap_or(""), parameters.first().copied().unwrap_or(""));
    let store = Published { trust, payer: Payer::Stranger, request_id };
    let chain = || Chain::watched(app, trust, &parts.headers, request_id);
    match operation {
        Operation::StoreCheckpoint => store::checkpoint(&store, query).await,
        Operation::StoreEntries => store::tile(&store, &format!("tile/entries/{tile}")).await,
        Operation::StoreTile => store::tile(&store, &format!("tile/{tile}")).await,
        Operation::StoreKeys => store::keys(&store).await,
        Operation::StoreProof => store::proof(&store, query).await,
        Operation::StoreConsistency => store::consistency(&store, query).await,
        Operation::Chain => chain::overview(&chain().await?).await,
        Operation::ChainCheckpoint => chain::checkpoint(&chain().await?).await,
        Operation::ChainEntries => {
            // No token reads what leaves tell of events.
            let chain = Chain::of_key(app, trust, &parts.headers, request_id).await?;
            leaves::entries(&chain, &format!("tile/entries/{tile}")).await
        }
        Operation::ChainTile => chain::tile(&chain().await?, &format!("tile/{tile}")).await,
        Operation::ChainHead => proof::head(&chain().await?, query).await,
        Operation::ChainConsistency => chain::consistency(&chain().await?, query).await,
        Operation::ChainProof => proof::event(&chain().await?, query).await,
        Operation::ChainRange => proof::range(&chain().await?, query).await,
        Operation::ChainVerify => leaves::check(&chain().await?, query).await,
    }
}
