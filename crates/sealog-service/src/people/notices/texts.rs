//! What notices say that come from the calendar and from exports.

use sealog_core::id::Uuid;
use serde_json::Value;

use crate::people::contact::Text;
use crate::people::notify;
use crate::zone;

type Write = fn(&Value, &str) -> Option<Text>;

pub(super) fn find(template: &str) -> Option<Write> {
    let known: [(&notify::Kind, Write); 6] = [
        (&notify::KEY_EXPIRING, key_expiring),
        (&notify::KEY_EXPIRED, key_expired),
        (&notify::TRIAL_ENDING, trial_ending),
        (&notify::TRIAL_ENDED, trial_ended),
        (&notify::AUDITOR_ENDING, auditor_ending),
        (&notify::EXPORT_READY, export_ready),
    ];
    known.into_iter().find(|(kind, _)| kind.name == template).map(|(_, write)| write)
}

/// A name is one line, whatever was put into it.
fn line(parameters: &Value, name: &str) -> Option<String> {
    let text = parameters[name].as_str()?;
    Some(text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
}

fn id(parameters: &Value, name: &str) -> Option<Uuid> {
    Uuid::parse(parameters[name].as_str()?)
}

fn moment(parameters: &Value, name: &str) -> Option<String> {
    Some(zone::moment(parameters[name].as_u64()?, parameters["zone"].as_str().unwrap_or(zone::UTC)))
}

/// `within 7 days`
fn in_days(parameters: &Value) -> Option<String> {
    Some(match parameters["days"].as_u64()? {
        1 => "within 1 day".into(),
        days => format!("within {days} days"),
    })
}

fn of_key(parameters: &Value) -> Option<String> {
    Some(format!(
        "    Key           {}
    Prefix        {}
    Project       {}
    Mode          {}
    Organisation  {}
    Expires       {}
",
        line(parameters, "name")?,
        line(parameters, "prefix")?,
        line(parameters, "project")?,
        line(parameters, "mode")?,
        line(parameters, "organisation")?,
        moment(parameters, "end_ms")?,
    ))
}

fn key_expiring(parameters: &Value, app_url: &str) -> Option<Text> {
    let (name, when) = (line(parameters, "name")?, in_days(parameters)?);
    let body = format!(
        "This API key expires soon. After that, requests with it are rejected.

{}
Create a replacement before then with “Roll” on the API keys page. You choose how long the old key keeps working.

API keys: {app_url}/o/{}/keys
",
        of_key(parameters)?,
        id(parameters, "tenant_id")?,
    );
    Some(Text { subject: format!("The API key “{name}” expires {when}"), body })
}

fn key_expired(parameters: &Value, app_url: &str) -> Option<Text> {
    let body = format!(
        "This API key has expired. Requests with it are rejected.

{}
API keys: {app_url}/o/{}/keys
",
        of_key(parameters)?,
        id(parameters, "tenant_id")?,
    );
    Some(Text { subject: format!("The API key “{}” has expired", line(parameters, "name")?), body })
}

fn trial_ending(parameters: &Value, app_url: &str) -> Option<Text> {
    let organisation = line(parameters, "organisation")?;
    let body = format!(
        "The trial of {organisation} ends on {}.

After that, new live and test events are rejected unless billing is active. You can still read and verify stored events.

Usage: {app_url}/o/{}/usage
",
        moment(parameters, "end_ms")?,
        id(parameters, "tenant_id")?,
    );
    Some(Text { subject: format!("The trial of {organisation} ends {}", in_days(parameters)?), body })
}

fn trial_ended(parameters: &Value, app_url: &str) -> Option<Text> {
    let organisation = line(parameters, "organisation")?;
    let body = format!(
        "The trial of {organisation} ended on {}.

New live and test events are rejected with 402 subscription/trial_expired. You can still read and verify stored events.

Usage: {app_url}/o/{}/usage
",
        moment(parameters, "end_ms")?,
        id(parameters, "tenant_id")?,
    );
    Some(Text { subject: format!("The trial of {organisation} has ended"), body })
}

fn auditor_ending(parameters: &Value, app_url: &str) -> Option<Text> {
    let (organisation, email) = (line(parameters, "organisation")?, line(parameters, "email")?);
    let body = format!(
        "An auditor's access to the audit event log of {organisation} ends soon.

    Auditor       {email}
    Organisation  {organisation}
    Ends          {}

An owner or admin can extend it on the Members page.

Dashboard: {app_url}
",
        moment(parameters, "end_ms")?,
    );
    Some(Text { subject: format!("{organisation}: an auditor's access ends {}", in_days(parameters)?), body })
}

fn export_ready(parameters: &Value, app_url: &str) -> Option<Text> {
    let (organisation, project) = (line(parameters, "organisation")?, line(parameters, "project")?);
    let (project_id, mode) = (id(parameters, "project_id")?, line(parameters, "mode")?);
    let body = format!(
        "An export created with your account is ready to download.

    Organisation  {organisation}
    Project       {project}
    Mode          {mode}
    Format        {}
    Created       {}

If you did not create it, change your password and inform an owner of {organisation}.

Exports: {app_url}/p/{project_id}/{mode}/exports
",
        line(parameters, "format")?,
        moment(parameters, "at_ms")?,
    );
    Some(Text { subject: format!("{organisation}: an export of {project} is ready"), body })
}
