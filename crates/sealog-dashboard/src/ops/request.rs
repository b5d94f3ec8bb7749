//! A request as pages of the console see it.

use sealog_control::OpsUserId;
use sealog_service::ops::SignedInOperator;

use crate::request::Asked;

/// Beneath which all pages of the console are.
pub(super) const BASE: &str = "/ops";

/// A request that has passed the gate.
pub(super) struct OpsAsked {
    pub request: Asked,
    pub operator: Option<SignedInOperator>,
}

impl OpsAsked {
    /// The gate lets nobody else through.
    pub(super) fn operator(&self) -> &SignedInOperator {
        self.operator.as_ref().expect("the route needs an operator")
    }

    pub(super) fn id(&self) -> OpsUserId {
        self.operator().user.id
    }
}
