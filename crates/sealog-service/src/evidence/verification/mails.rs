//! Mails about verifications: a chain that is broken, and the weekly report. Both are in the outbox once.

use std::sync::Arc;

use sealog_control::Tenant;
use sealog_core::id::ChainId;
use sealog_core::time::iso_ms;
use sealog_store::StoreError;
use sealog_store::world::World;
use serde_json::{Value, json};

use super::found::Found;
use super::run::Run;
use crate::people::contact::Text;
use crate::people::notify::{Kind, Notifier, VERIFICATION_FAILED};
use sealog_control::Control;

pub(crate) const FAILED: &str = "verification_failed";
pub(crate) const REPORT: &str = "integrity_report";

/// Puts the notice of a break into the outbox, whoever has started the verification; no setting turns it off.
/// Once for a break, however often it is found.
pub(super) async fn enqueue_failed(
    control: &Arc<Control>,
    world: &Arc<dyn World>,
    run: &Run,
    found: &Found,
) -> Result<(), StoreError> {
    let chain = run.chain;
    let Some(tenant) = control.tenant(chain.tenant_id).await? else { return Ok(()) };
    let hash = found.hash.map(|hash| hash.to_string()).unwrap_or_default();
    let key = format!("{}/{}/{}/{hash}", chain.project_id, chain.mode.as_str(), found.at);
    let parameters = json!({
        "name": tenant.name,
        "project": name_of(control, chain).await?,
        "project_id": chain.project_id.to_string(),
        "mode": chain.mode.as_str(),
        "at": found.at,
        "explanation": found.explain(),
        "verification_id": run.id.to_string(),
    });
    enqueue(control, world, &tenant, &key, &VERIFICATION_FAILED, parameters).await
}

/// What people call a chain.
pub(super) async fn name_of(control: &Arc<Control>, chain: ChainId) -> Result<String, StoreError> {
    if chain.is_system() {
        return Ok("System log".into());
    }
    let project = control.project(chain.project_id).await?;
    Ok(project.map_or_else(|| chain.project_id.to_string(), |project| project.name))
}

pub(super) fn report_key(tenant: &Tenant, night_ms: u64) -> String {
    format!("{}/{}", tenant.id, &iso_ms(night_ms)[..10])
}

/// For owners, admins and the tenant's contact. `key` is what it is about.
pub(super) async fn enqueue(
    control: &Arc<Control>,
    world: &Arc<dyn World>,
    tenant: &Tenant,
    key: &str,
    kind: &'static Kind,
    parameters: Value,
) -> Result<(), StoreError> {
    Notifier::new(control, Arc::clone(world)).tell_managers(kind, tenant, key, parameters).await.map(drop)
}

/// A name is one line, whatever was put into it.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

pub(crate) fn failed_text(parameters: &Value, app_url: &str) -> Option<Text> {
    let text = |name: &str| parameters[name].as_str().map(line);
    let (name, project, explanation) = (text("name")?, text("project")?, text("explanation")?);
    let (project_id, mode, run) = (text("project_id")?, text("mode")?, text("verification_id")?);
    let at = parameters["at"].as_u64()?;
    let body = format!(
        "A verification found a broken chain of events.

    Organisation  {name}
    Project       {project} ({mode})
    Broken at     #{at}
    Found         {explanation}

Do not change the storage. Copy it before you restore anything. Compare with hashes recorded elsewhere: receipts, reports, exports. The verification page shows both sides of the break.

Verification: {app_url}/p/{project_id}/{mode}/verify/{run}
"
    );
    Some(Text { subject: format!("{name}: the chain of {project} ({mode}) is broken at #{at}"), body })
}

/// A line of the report.
pub(super) fn chain_in_report(name: &str, mode: &str, report: &ChainReport) -> Value {
    json!({
        "name": name,
        "mode": mode,
        "events": report.end,
        "hash": report.hash,
        "checked": report.checked,
        "nights": report.nights,
        "broken_at": report.broken_at,
    })
}

/// What the nights before a report have come to, for one chain.
#[derive(Clone, Debug, Default)]
pub(super) struct ChainReport {
    pub end: u64,
    pub hash: String,
    /// Events, each as often as it was checked.
    pub checked: u64,
    /// Of the last seven, those whose verification found nothing wrong.
    pub nights: u64,
    pub broken_at: Option<u64>,
}

pub(crate) fn report_text(parameters: &Value, app_url: &str) -> Option<Text> {
    let (name, date) = (line(parameters["name"].as_str()?), line(parameters["date"].as_str()?));
    let chains = parameters["chains"].as_array()?;
    let (broken, unverified) = (parameters["broken"].as_u64()?, parameters["unverified"].as_u64()?);
    let left_out = parameters["left_out"].as_u64()?;
    let result = match (broken, unverified) {
        (0, 0) => "no problems",
        (0, _) => "not every chain was verified",
        _ => "a chain is broken",
    };
    let mut body = format!(
        "The integrity report of {name} for the week before {date}: {result}.

    Organisation      {name}
    Broken chains     {broken}
    Not verified      {unverified}
"
    );
    for chain in chains {
        let text = |name: &str| chain[name].as_str().map(line);
        let number = |name: &str| chain[name].as_u64();
        let state = match (number("broken_at"), number("nights")?) {
            (Some(at), _) => format!("BROKEN at #{at}"),
            (None, 0) => "not verified this week".to_owned(),
            (None, nights) => format!("verified in {nights} of 7 nights, no problems"),
        };
        body.push_str(&format!(
            "
    Chain             {} ({})
    State             {state}
    Checked           {} events
    Last event        #{}
    Last hash         {}
",
            text("name")?,
            text("mode")?,
            number("checked")?,
            number("events")?,
            text("hash")?,
        ));
    }
    if left_out > 0 {
        body.push_str(&format!("\nFurther chains, counted above but not listed: {left_out}.\n"));
    }
    body.push_str(&format!(
        "\nKeep this e-mail. A chain that is rewritten later cannot have these hashes at these positions.\n\nDashboard: {app_url}\n"
    ));
    Some(Text { subject: format!("{name}: weekly integrity report, {result}"), body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mail_of_a_break_says_where_and_leads_to_the_verification() {
        let parameters = json!({
            "name": "Acme\nBcc: x", "project": "Shop", "project_id": "p", "mode": "live", "at": 7,
            "explanation": "its hash is another", "verification_id": "v",
        });
        let text = failed_text(&parameters, "https://log.example/app").unwrap();
        assert_eq!(text.subject, "Acme Bcc: x: the chain of Shop (live) is broken at #7");
        assert!(text.body.contains("https://log.example/app/p/p/live/verify/v"), "{}", text.body);
        assert_eq!(failed_text(&json!({}), ""), None);
    }

    #[test]
    fn a_report_says_what_is_wrong_first() {
        let report = |broken: u64, unverified: u64| {
            let of = ChainReport { end: 9, hash: "ab".into(), checked: 63, nights: 7, broken_at: None };
            let parameters = json!({
                "name": "Acme", "date": "2026-11-16", "broken": broken, "unverified": unverified, "left_out": 3,
                "chains": [chain_in_report("Shop", "live", &of)],
            });
            report_text(&parameters, "https://log.example/app").unwrap()
        };
        let text = report(0, 0);
        assert_eq!(text.subject, "Acme: weekly integrity report, no problems");
        assert!(text.body.contains("verified in 7 of 7 nights") && text.body.contains("not listed: 3"));
        assert!(report(0, 1).subject.ends_with("not every chain was verified"));
        assert!(report(1, 1).subject.ends_with("a chain is broken"));
    }
}
