//! Every path under `/tlog/v1/`, as `routes.rs` has those of the API.

use hyper::Method;

use crate::routes::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    StoreCheckpoint,
    StoreEntries,
    StoreTile,
    StoreKeys,
    StoreProof,
    StoreConsistency,
    Chain,
    ChainCheckpoint,
    ChainEntries,
    ChainTile,
    ChainHead,
    ChainConsistency,
    ChainProof,
    ChainRange,
    ChainVerify,
}

/// What all these paths begin with. None of them exists where the store publishes nothing.
pub(crate) const BEGINNING: &str = "/tlog/v1/";

pub(crate) static PATHS: [Path<Operation>; 15] = [
    path("/tlog/v1/store/checkpoint", &[(Method::GET, Operation::StoreCheckpoint)]),
    path("/tlog/v1/store/tile/entries/{*tile}", &[(Method::GET, Operation::StoreEntries)]),
    path("/tlog/v1/store/tile/{*tile}", &[(Method::GET, Operation::StoreTile)]),
    path("/tlog/v1/store/keys", &[(Method::GET, Operation::StoreKeys)]),
    path("/tlog/v1/store/proof", &[(Method::GET, Operation::StoreProof)]),
    path("/tlog/v1/store/consistency", &[(Method::GET, Operation::StoreConsistency)]),
    path("/tlog/v1/chain", &[(Method::GET, Operation::Chain)]),
    path("/tlog/v1/chain/checkpoint", &[(Method::GET, Operation::ChainCheckpoint)]),
    path("/tlog/v1/chain/tile/entries/{*tile}", &[(Method::GET, Operation::ChainEntries)]),
    path("/tlog/v1/chain/tile/{*tile}", &[(Method::GET, Operation::ChainTile)]),
    path("/tlog/v1/chain/head", &[(Method::GET, Operation::ChainHead)]),
    path("/tlog/v1/chain/consistency", &[(Method::GET, Operation::ChainConsistency)]),
    path("/tlog/v1/chain/proof", &[(Method::GET, Operation::ChainProof)]),
    path("/tlog/v1/chain/range", &[(Method::GET, Operation::ChainRange)]),
    path("/tlog/v1/chain/verify", &[(Method::GET, Operation::ChainVerify)]),
];

const fn path(pattern: &'static str, operations: &'static [(Method, Operation)]) -> Path<Operation> {
    Path { pattern, operations }
}
