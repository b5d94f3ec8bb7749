//! Notices for a person, as pages list them: also those that no mail brought.

use sealog_control::KeptNotice;
use sealog_core::id::TenantId;
use sealog_core::time::DAY_MS;
use sealog_service::people::notices;
use sealog_service::zone;

use crate::app::Dashboard;
use crate::gate::of_control;
use crate::problem::Problem;
use crate::request::Asked;
use crate::text::visible;

/// Those of the last days, and how many are read to find those that are shown.
const DAYS: u64 = 30;
const READ_MAX: usize = 100;

pub(crate) struct NoticeRow {
    pub subject: String,
    pub href: Option<String>,
    pub when: String,
    /// What became of the mail.
    pub state: String,
    pub is_bad: bool,
}

/// Newest first. Those about one organisation, if one is named.
pub(crate) async fn read(
    app: &Dashboard,
    asked: &Asked,
    tenant_id: Option<TenantId>,
    zone: &str,
    limit: usize,
) -> Result<Vec<NoticeRow>, Problem> {
    let since_ms = app.service.world.now_ms().saturating_sub(DAYS * DAY_MS);
    let found = app.service.control.notices_for(asked.person().person.id, since_ms, READ_MAX).await;
    let found = found.map_err(of_control)?;
    let about = found.iter().filter(|notice| tenant_id.is_none() || notice.tenant_id == tenant_id);
    Ok(about.filter_map(|notice| row(app, notice, zone)).take(limit).collect())
}

fn row(app: &Dashboard, notice: &KeptNotice, zone: &str) -> Option<NoticeRow> {
    let state = match (notice.sent_at_ms, notice.given_up_at_ms, &notice.last_failure) {
        (Some(_), ..) => "E-mailed".to_owned(),
        (None, Some(_), failure) => {
            format!("Not e-mailed: {}", visible(failure.as_deref().unwrap_or("refused")))
        }
        (None, None, _) if !app.has_mail() => "Not e-mailed (no mail server)".into(),
        (None, None, Some(failure)) => format!("Not e-mailed yet: {}", visible(failure)),
        (None, None, None) => "E-mail queued".into(),
    };
    Some(NoticeRow {
        subject: visible(&notices::subject(notice)?),
        href: notices::path(notice).map(|path| format!("/app{path}")),
        when: zone::moment(notice.created_at_ms, zone),
        state,
        is_bad: notice.given_up_at_ms.is_some(),
    })
}
