//! Notices become text when they are sent: the outbox has the name of a template and its parameters.

use sealog_control::Notice;
use serde_json::Value;

use crate::cases::reminders;
use crate::people::{self, Token};
use crate::quota;
use crate::text::Text;
use crate::verification;

/// A mail that an earlier version wrote whole.
const WRITTEN: &str = "text";

/// Whether the text has a link with a secret, which is made for each attempt to send it.
pub(crate) fn has_secret(notice: &Notice) -> bool {
    matches!(notice.template.as_str(), people::RESET | people::INVITATION)
}

/// Why not is for the log, and for the operator: a newer version may know the template.
pub(crate) fn render(notice: &Notice, app_url: &str, secret: Option<&Token>) -> Result<Text, String> {
    let parameters: Value = serde_json::from_str(&notice.parameters)
        .map_err(|error| format!("the parameters of the notice are no JSON: {error}"))?;
    let text = match notice.template.as_str() {
        quota::TEMPLATE => quota::text(&parameters, app_url),
        people::RESET => secret.map(|secret| people::reset_text(app_url, secret)),
        people::INVITATION => secret.and_then(|secret| people::invitation_text(&parameters, app_url, secret)),
        verification::FAILED => verification::failed_text(&parameters, app_url),
        verification::REPORT => verification::report_text(&parameters, app_url),
        reminders::ASSIGNED => reminders::assigned_text(&parameters, app_url),
        reminders::DUE => reminders::due_text(&parameters, app_url),
        WRITTEN => written(&parameters),
        other => return Err(format!("the template {other:?} is unknown")),
    };
    text.ok_or_else(|| format!("the template {:?} lacks a parameter", notice.template))
}

fn written(parameters: &Value) -> Option<Text> {
    let text = |name: &str| Some(parameters[name].as_str()?.to_owned());
    Some(Text { subject: text("subject")?, body: text("body")? })
}
