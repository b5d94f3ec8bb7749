//! Reads of what is published, and what all its answers have in common.

use std::sync::Arc;

use hyper::header::{CACHE_CONTROL, HeaderValue};
use hyper::{Response, StatusCode};
use sealog_core::id::{Hash, RequestId};
use sealog_core::reject::Code;
use sealog_engine::Trust;
use sealog_engine::trust_log::{Place, StoreLog};
use sealog_store::StoreError;
use sealog_store::pool::Payer;
use sealog_trust::text::base64;
use sealog_trust::tile::Tile;

use crate::respond::{self, Body, Failure};

/// The store log, for one request.
pub(super) struct Published<'a> {
    pub trust: &'a Arc<Trust>,
    pub payer: Payer,
    pub request_id: RequestId,
}

impl Published<'_> {
    pub(super) async fn read<T: Send + 'static>(
        &self,
        act: impl FnOnce(&StoreLog) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Failure> {
        self.trust.read(self.payer, act).await.map_err(|error| self.failed(&error))
    }

    /// What is published lies with control data.
    pub(super) fn failed(&self, error: &StoreError) -> Failure {
        match error {
            StoreError::ControlUnavailable(_) => Failure::control(error, self.request_id),
            _ => Failure::read(error, self.request_id),
        }
    }

    pub(super) async fn place(&self) -> Result<Place, Failure> {
        self.read(StoreLog::place).await?.ok_or_else(|| not_found("No store log was begun."))
    }
}

pub(super) fn not_found(message: &str) -> Failure {
    Failure::new(Code::TlogNotFound, message)
}

/// A tile or an entry bundle by its path, which has one spelling.
pub(super) fn parse_tile(path: &str) -> Result<Tile, Failure> {
    Tile::parse(path).map_err(|malformed| {
        Failure::new(Code::ReadInvalidParams, format!("the path of a tile: {malformed}"))
    })
}

pub(super) fn bytes(content: Vec<u8>) -> Response<Body> {
    respond::with_type(StatusCode::OK, "application/octet-stream", content)
}

pub(super) fn kept_for(mut response: Response<Body>, how_long: &'static str) -> Response<Body> {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(how_long));
    response
}

/// As JSON has them.
pub(super) fn hashes(path: &[Hash]) -> Vec<String> {
    path.iter().map(|hash| base64(&hash.0)).collect()
}
