//! The row of a chain, which every append locks.

use sealog_core::chain::Head;
use sealog_core::id::ChainId;
use tokio_postgres::Error;
use tokio_postgres::types::{ToSql, Type};

use super::pool::Session;
use super::rows::{Digest32, Id};

const CREATE: &str =
    "INSERT INTO sealog.chains (chain_id, tenant_id, project_id, mode, chain_seq, log_id, hash)
    VALUES ($1, $2, $3, $4, 0, $5, $6) ON CONFLICT (chain_id) DO NOTHING";

pub(super) async fn create(session: &Session, chain: ChainId) -> Result<(), Error> {
    let types = [Type::UUID, Type::UUID, Type::UUID, Type::TEXT, Type::UUID, Type::BYTEA];
    let (tenant, project) = (Id(chain.tenant_id.0.0), Id(chain.project_id.0.0));
    let (log_id, hash) = (Id::of_ulid(Head::EMPTY.log_id), Digest32(Head::EMPTY.hash.0));
    let params: [&(dyn ToSql + Sync); 6] =
        [&Id::of_chain(chain), &tenant, &project, &chain.mode.as_str(), &log_id, &hash];
    session.execute(CREATE, &types, &params).await.map(drop)
}
