//! Accepting a loss: what the command asks for, what is done, and what came of it.

use std::fmt;
use std::sync::Arc;

use sealog_cli::exit::{Exit, Failure};
use sealog_control::Control;
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use sealog_service::people::admin::{Actor, AdminError};
use sealog_service::people::ops::Desk;
use sealog_store::loss;
use serde::{Deserialize, Serialize};

use super::host::Host;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    pub chain: Named,
    pub reason: String,
}

/// What was done, as machines read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Accepted {
    tenant_id: String,
    project_id: String,
    mode: String,
    lost_from: u64,
    lost_to: Option<u64>,
    recorded_hash: String,
    reason: String,
    accepted: Acceptance,
}

/// The event that was sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Acceptance {
    chain_seq: u64,
    log_id: String,
    hash: String,
}

/// As the console does it: the tenant's system chain has the order, by the host.
pub(crate) async fn accept(host: &Host, request: &Request) -> Result<Accepted, Failure> {
    let control = host.opened.control();
    let chain = request.chain.chain(control).await?;
    let desk = Desk {
        control: Arc::clone(control),
        store: host.opened.store(),
        world: Arc::clone(&host.world),
        wake: host.wake.clone(),
    };
    let accepted = desk.accept_loss(Actor::Host, chain, &request.reason).await.map_err(|error| {
        let (exit, cause) = match error {
            AdminError::Field(error) => (Exit::Usage, error.problem),
            AdminError::NotFound => (Exit::Failure, loss::nothing_lost().to_string()),
            AdminError::Store(error) => (Exit::Failure, error.to_string()),
            AdminError::Internal(problem) => (Exit::Failure, problem),
        };
        Failure::new(exit, format!("chain {chain}: {cause}"))
    });
    let (receipt, loss) = accepted?;
    // What was sealed is what counts.
    let loss = loss.ok_or_else(|| "cannot read back the acceptance".to_owned())?;
    Ok(Accepted {
        tenant_id: chain.tenant_id.to_string(),
        project_id: chain.project_id.to_string(),
        mode: chain.mode.as_str().to_owned(),
        lost_from: loss.lost_from,
        lost_to: loss.lost_to,
        recorded_hash: loss.recorded_hash.to_string(),
        reason: request.reason.trim().to_owned(),
        accepted: Acceptance {
            chain_seq: receipt.first_seq,
            log_id: receipt.log_ids[0].to_string(),
            hash: receipt.hash.to_string(),
        },
    })
}

/// For people.
impl fmt::Display for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Accepted { tenant_id, project_id, mode, lost_from, recorded_hash, accepted, .. } = self;
        write!(f, "chain {tenant_id}/{project_id}/{mode}: ")?;
        match self.lost_to {
            Some(lost_to) if lost_to == *lost_from => {
                writeln!(f, "event {lost_from} is lost; its hash was {recorded_hash}")?;
            }
            Some(lost_to) => writeln!(
                f,
                "events {lost_from} to {lost_to} are lost ({} events); the hash of the last one was {recorded_hash}",
                lost_to - lost_from + 1
            )?,
            None => writeln!(
                f,
                "events from {lost_from} on may be lost; their number is unknown. The last existing event has the hash {recorded_hash}"
            )?,
        }
        let Acceptance { chain_seq, log_id, hash } = accepted;
        write!(f, "accepted as event {chain_seq} of the chain: log_id {log_id}, hash {hash}")
    }
}

/// A chain as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Named {
    tenant_id: Option<TenantId>,
    project_id: ProjectId,
    mode: Mode,
}

impl Named {
    pub(crate) fn parse(text: &str) -> Option<Named> {
        let mode = |text: &str| Mode::ALL.into_iter().find(|mode| mode.as_str() == text);
        if let Some((project, of)) = text.split_once(':') {
            return Some(Named {
                tenant_id: None,
                project_id: ProjectId(Uuid::parse(project)?),
                mode: mode(of)?,
            });
        }
        let mut parts = text.split('/');
        let named = Named {
            tenant_id: Some(TenantId(Uuid::parse(parts.next()?)?)),
            project_id: ProjectId(Uuid::parse(parts.next()?)?),
            mode: mode(parts.next()?)?,
        };
        parts.next().is_none().then_some(named)
    }

    /// Its tenant is known from control data. A chain of no project would be made by its own acceptance, so a
    /// mistyped id must find nothing.
    async fn chain(&self, control: &Control) -> Result<ChainId, Failure> {
        let Named { tenant_id, project_id, mode } = *self;
        let owner = if project_id.is_system() {
            control.tenant_of_system_project(project_id).await
        } else {
            control.project(project_id).await.map(|project| project.map(|project| project.tenant_id))
        };
        let owner = owner.map_err(|error| error.to_string())?;
        let owner = owner.ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("--chain: there is no project {project_id}"))
        })?;
        if tenant_id.is_some_and(|tenant_id| tenant_id != owner) {
            let wrong = format!("--chain: the project {project_id} belongs to another tenant");
            return Err(Failure::usage(wrong));
        }
        Ok(ChainId { tenant_id: owner, project_id, mode })
    }
}

impl TryFrom<String> for Named {
    type Error = String;

    fn try_from(text: String) -> Result<Named, String> {
        Named::parse(&text).ok_or_else(|| no_chain(&text))
    }
}

impl From<Named> for String {
    fn from(Named { tenant_id, project_id, mode }: Named) -> String {
        match tenant_id {
            Some(tenant_id) => ChainId { tenant_id, project_id, mode }.to_string(),
            None => format!("{project_id}:{}", mode.as_str()),
        }
    }
}

pub(crate) fn no_chain(text: &str) -> String {
    format!("{text:?} is not a chain; use PROJECT_ID:live, PROJECT_ID:test or TENANT_ID/PROJECT_ID/MODE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_named_by_its_project_or_as_the_log_names_it() {
        let (tenant, project) =
            ("11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222");
        let named = |text: &str| Named::parse(text);
        let project_id = ProjectId(Uuid::parse(project).unwrap());
        let test = Named { tenant_id: None, project_id, mode: Mode::Test };
        assert_eq!(named(&format!("{project}:test")), Some(test));
        let tenant_id = TenantId(Uuid::parse(tenant).unwrap());
        let chain = ChainId { tenant_id, project_id, mode: Mode::Live };
        let live = Named { tenant_id: Some(tenant_id), project_id, mode: Mode::Live };
        assert_eq!(named(&chain.to_string()), Some(live));
        for read in [test, live] {
            assert_eq!(Named::try_from(String::from(read)), Ok(read));
        }
        for wrong in [
            "",
            project,
            "x:live",
            &format!("{project}:prod"),
            &format!("{chain}/x"),
            &format!("{project}/live"),
        ] {
            assert_eq!(named(wrong), None, "{wrong}");
        }
    }
}
