//! What notices say that come from the calendar and from exports.

use sealog_core::id::Uuid;
use serde_json::Value;

use crate::notify;
use crate::text::Text;
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
    Begins with   {}
    Project       {}
    Mode          {}
    Organisation  {}
    End           {}
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
        "An API key works until its end, and requests with it are refused from then on.

{}
Make another one in its place before that: “Roll” on the page of keys does it, and the old key works on for as long as you say.

API keys: {app_url}/o/{}/keys
",
        of_key(parameters)?,
        id(parameters, "tenant_id")?,
    );
    Some(Text { subject: format!("The API key “{name}” expires {when}"), body })
}

fn key_expired(parameters: &Value, app_url: &str) -> Option<Text> {
    let body = format!(
        "An API key has come to its end. Requests with it are refused.

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

Without billing, new events are refused from then on, live and test. What is stored stays, and can be read and verified.

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

New events are refused with 402 subscription/trial_expired, live and test. What is stored stays, and can be read and verified.

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
        "An auditor's access to the audit event log of {organisation} comes to its end.

    Auditor       {email}
    Organisation  {organisation}
    End           {}

An owner or an admin can move the end on the page of members.

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
        "An export that was made with your account is ready to be downloaded.

    Organisation  {organisation}
    Project       {project}
    Mode          {mode}
    Format        {}
    Made          {}

If you know nothing of it, change your password and tell an owner of {organisation}.

Exports: {app_url}/p/{project_id}/{mode}/exports
",
        line(parameters, "format")?,
        moment(parameters, "at_ms")?,
    );
    Some(Text { subject: format!("{organisation}: an export of {project} is ready"), body })
}
