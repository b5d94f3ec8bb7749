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
}

/// What all these paths begin with. None of them exists where the store publishes nothing.
pub(crate) const BEGINNING: &str = "/tlog/v1/";

pub(crate) static PATHS: [Path<Operation>; 6] = [
    path("/tlog/v1/store/checkpoint", &[(Method::GET, Operation::StoreCheckpoint)]),
    path("/tlog/v1/store/tile/entries/{*tile}", &[(Method::GET, Operation::StoreEntries)]),
    path("/tlog/v1/store/tile/{*tile}", &[(Method::GET, Operation::StoreTile)]),
    path("/tlog/v1/store/keys", &[(Method::GET, Operation::StoreKeys)]),
    path("/tlog/v1/store/proof", &[(Method::GET, Operation::StoreProof)]),
    path("/tlog/v1/store/consistency", &[(Method::GET, Operation::StoreConsistency)]),
];

const fn path(pattern: &'static str, operations: &'static [(Method, Operation)]) -> Path<Operation> {
    Path { pattern, operations }
}
