//! `sealog accept-loss`: lets a chain go on whose last events are lost.

use std::sync::Arc;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_control::Projects;
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use sealog_core::json;
use sealog_store::loss::Loss;
use sealog_store::world::SystemWorld;
use sealog_store::{Receipt, StoreError};

use crate::config;
use crate::store::Opened;

pub(crate) fn command() -> Command {
    config::with_flags(
        Command::new("accept-loss").about("Lets a chain go on whose last events are proven lost").long_about(
            "Lets a chain go on whose last events are proven lost.\n\n\
             A chain that is known to have had more events than are there accepts no more: an event that is sealed on top would hide the loss. After you have looked for the \
             events (another copy of the data directory, a backup, a standby) and cannot bring them back, this command accepts the loss. The acceptance is the next event of the \
             chain, with the action sealog.loss_accepted; its metadata says which events are lost, the hash that the last of them had, and your reason. From then on the chain \
             verifies again and accepts events. Nothing that exists is removed, and the acceptance cannot be taken back.\n\n\
             Stop the server of an embedded store first. With PostgreSQL the servers may run; give the data directory of the server that reported the loss.\n\n\
             The command asks nothing. It prints what is lost, then what was sealed. It ends with 0 when the loss was accepted, and with 1 when nothing was changed: \
             the chain has lost nothing, or the store cannot be opened, read or written.",
        ),
    )
    .arg(
        Arg::new("chain")
            .long("chain")
            .value_name("PROJECT_ID:MODE")
            .required(true)
            .help("The chain, such as 7d444840-9dc0-41d1-b245-5ffdce74fad2:live; or as the log names it, TENANT_ID/PROJECT_ID/MODE"),
    )
    .arg(
        Arg::new("reason")
            .long("reason")
            .value_name("TEXT")
            .required(true)
            .help("Why the events are lost and why that is accepted; it is sealed into the chain and cannot be changed"),
    )
    .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Prints one JSON object for machines"))
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), String> {
    let text = |name: &str| matches.get_one::<String>(name).expect("clap asks for it").as_str();
    let named = Named::parse(text("chain")).ok_or_else(|| {
        format!(
            "--chain: {:?} is no chain; write PROJECT_ID:live, PROJECT_ID:test or TENANT_ID/PROJECT_ID/MODE",
            text("chain")
        )
    })?;
    let reason = text("reason");
    if reason.trim().is_empty() {
        return Err("--reason: say why the loss is accepted; it is sealed into the chain".into());
    }
    let settings = config::load(matches, std::env::vars()).map_err(|error| error.to_string())?;
    let world = Arc::new(SystemWorld);
    let opened = Opened::open(&settings.store, &settings.data_dir, settings.open_options(), world)
        .map_err(|unopened| unopened.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let accepted = runtime.block_on(accept(&opened, &named, reason, matches.get_flag("json")));
    opened.close();
    accepted
}

async fn accept(opened: &Opened, named: &Named, reason: &str, as_json: bool) -> Result<(), String> {
    let store = opened.store();
    let chain = named.chain(&**opened.control()).await?;
    let failed = |error: StoreError| format!("chain {chain}: {error}");
    let head = store.head(chain).await.map_err(failed)?;
    let announced = !as_json && head.recorded.chain_seq > head.durable.chain_seq;
    if announced {
        println!("{}", describe(chain, &Loss::of(&head)));
    }
    let receipt = store.accept_loss(chain, reason.to_owned()).await.map_err(failed)?;
    // What was sealed is what counts.
    let event = store.get(chain, receipt.log_ids[0]).await.map_err(failed)?;
    let loss = event.as_ref().and_then(Loss::accepted_by).ok_or("the acceptance cannot be read back")?;
    if as_json {
        println!("{}", to_json(chain, &loss, reason, &receipt));
        return Ok(());
    }
    if !announced {
        println!("{}", describe(chain, &loss));
    }
    println!(
        "accepted as event {} of the chain: log_id {}, hash {}",
        receipt.first_seq, receipt.log_ids[0], receipt.hash
    );
    Ok(())
}

fn describe(chain: ChainId, loss: &Loss) -> String {
    let Loss { lost_from, lost_to, recorded_hash } = loss;
    match lost_to {
        Some(lost_to) if lost_to == lost_from => {
            format!("chain {chain}: event {lost_from} is lost; its hash was {recorded_hash}")
        }
        Some(lost_to) => format!(
            "chain {chain}: events {lost_from} to {lost_to} are lost ({} events); the hash of the last one was {recorded_hash}",
            lost_to - lost_from + 1
        ),
        None => format!(
            "chain {chain}: events from {lost_from} on may be lost; how many cannot be known. The last event that is there has the hash {recorded_hash}"
        ),
    }
}

fn to_json(chain: ChainId, loss: &Loss, reason: &str, receipt: &Receipt) -> String {
    let lost_to = loss.lost_to.map_or_else(|| "null".to_owned(), |seq| seq.to_string());
    let mut quoted = Vec::new();
    json::put_string(reason, &mut quoted);
    let ChainId { tenant_id, project_id, mode } = chain;
    format!(
        "{{\"tenant_id\":\"{tenant_id}\",\"project_id\":\"{project_id}\",\"mode\":\"{}\",\"lost_from\":{},\"lost_to\":{lost_to},\"recorded_hash\":\"{}\",\"reason\":{},\
         \"accepted\":{{\"chain_seq\":{},\"log_id\":\"{}\",\"hash\":\"{}\"}}}}",
        mode.as_str(),
        loss.lost_from,
        loss.recorded_hash,
        String::from_utf8_lossy(&quoted),
        receipt.first_seq,
        receipt.log_ids[0],
        receipt.hash
    )
}

/// A chain as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named {
    tenant_id: Option<TenantId>,
    project_id: ProjectId,
    mode: Mode,
}

impl Named {
    fn parse(text: &str) -> Option<Named> {
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

    /// Its tenant is known from the accounts. A chain of no project would be made by its own acceptance, so a mistyped id must find nothing.
    async fn chain(&self, projects: &dyn Projects) -> Result<ChainId, String> {
        let Named { tenant_id, project_id, mode } = *self;
        let project = projects.project(project_id).await.map_err(|error| error.to_string())?;
        let project = project.ok_or_else(|| format!("--chain: there is no project {project_id}"))?;
        match tenant_id {
            Some(tenant_id) if tenant_id != project.tenant_id => {
                Err(format!("--chain: the project {project_id} belongs to another tenant"))
            }
            _ => Ok(ChainId { tenant_id: project.tenant_id, project_id, mode }),
        }
    }
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
