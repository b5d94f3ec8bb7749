//! What administrative commands can ask for, and the one function that does it.

use sealog_cli::exit::Failure;
use serde::{Deserialize, Serialize};

use super::host::Host;
use super::{divergence, inspect, loss, moment, ops_user, reset, tenant, trust};

/// What an operator can ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    AcceptLoss(loss::Request),
    Reset(reset::Request),
    OpsUser(ops_user::Request),
    Inspect,
    TakeMoment(moment::Request),
    RecordDivergence(sealog_backup::Diverged),
    ReadTenant(tenant::Read),
    CloseTenant(tenant::Close),
    Trust(trust::Request),
}

impl Request {
    /// For the log.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Request::AcceptLoss(_) => "accept-loss",
            Request::Reset(_) => "reset",
            Request::OpsUser(_) => "ops-user",
            Request::Inspect => "doctor",
            Request::TakeMoment(_) => "backup",
            Request::RecordDivergence(_) => "replicate --divergence",
            Request::ReadTenant(_) => "tenant export",
            Request::CloseTenant(_) => "tenant close",
            Request::Trust(_) => "trust",
        }
    }

    /// Whether it is one of the many by which a command goes on, of which the first is logged.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self, Request::ReadTenant(read) if read.part != sealog_backup::TenantPart::Chains)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    AcceptLoss(loss::Accepted),
    Reset(reset::Made),
    OpsUser(ops_user::Done),
    Inspect(inspect::State),
    TakeMoment(sealog_backup::Taken),
    /// Whether there is such a tenant.
    RecordDivergence(bool),
    ReadTenant(sealog_backup::TenantPage),
    CloseTenant(tenant::Done),
    Trust(Box<trust::Log>),
}

/// Does what a command asks. An error is a text for the operator, with the code that the command ends with.
pub(super) async fn administer(host: &Host, request: Request) -> Result<Answer, Failure> {
    match request {
        Request::AcceptLoss(request) => loss::accept(host, &request).await.map(Answer::AcceptLoss),
        Request::Reset(request) => reset::make(host, &request).await.map(Answer::Reset),
        Request::OpsUser(request) => ops_user::run(host, &request).await.map(Answer::OpsUser),
        Request::Inspect => inspect::state(host).await.map(Answer::Inspect).map_err(Failure::from),
        Request::TakeMoment(request) => {
            moment::take(host, request).await.map(Answer::TakeMoment).map_err(Failure::from)
        }
        Request::RecordDivergence(diverged) => {
            divergence::record(host, &diverged).await.map(Answer::RecordDivergence)
        }
        Request::ReadTenant(request) => tenant::read(host, request).await.map(Answer::ReadTenant),
        Request::CloseTenant(request) => tenant::close(host, request).await.map(Answer::CloseTenant),
        Request::Trust(request) => trust::run(host, &request).await.map(Box::new).map(Answer::Trust),
    }
}
