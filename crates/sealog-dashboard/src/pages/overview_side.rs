//! What stands beside the figures of Overview: quota, keys that end soon, views that were pinned, gaps of
//! frameworks, the last verifications.

use sealog_control::{ApiKey, Grants};
use sealog_core::catalog::Catalog;
use sealog_core::id::{ChainId, Mode};
use sealog_core::time::{DAY_MS, Month};
use sealog_service::evidence::verification::Run;
use sealog_service::zone;

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::figures::{self, Figures};
use crate::gate::of_control;
use crate::pages::cases;
use crate::pages::notice_list::{self, NoticeRow};
use crate::pages::saved_views;
use crate::pages::verification::{self, ResultShown};
use crate::place::is_window;
use crate::problem::{Problem, of_admin};
use crate::request::{Asked, Place};
use crate::text::{day, moment, number, span, visible};

/// A key that ends within so much time is shown.
const EXPIRING_MS: u64 = 14 * DAY_MS;
const KEYS_MAX: usize = 5;
/// Notices for whoever looks, the last ones.
const NOTICES: usize = 5;
/// Verifications on the card.
const RUNS_SHOWN: usize = 4;
/// Verifications from which is told how far the chain is known to be sound.
const RUNS_READ: usize = 50;

pub(crate) struct Side {
    /// For whoever looks, of this organisation.
    pub notices: Vec<NoticeRow>,
    pub quota: Option<Quota>,
    /// For those who may see them.
    pub keys: Option<Expiring>,
    pub views: Vec<saved_views::Row>,
    /// The list of cases, and what of it is due next.
    pub due: Option<(String, Vec<cases::Row>)>,
    pub frameworks: Vec<Coverage>,
    pub runs: Runs,
}

pub(crate) struct Quota {
    pub used: String,
    /// Of the plan; nothing where it is unlimited.
    pub of: Option<(u64, u64, u64, String)>,
    pub href: String,
}

pub(crate) struct Coverage {
    pub label: String,
    pub href: String,
    pub seen: usize,
    pub required: usize,
}

pub(crate) struct Expiring {
    pub href: String,
    pub rows: Vec<KeyRow>,
    /// There are more than these.
    pub has_more: bool,
}

pub(crate) struct KeyRow {
    pub name: String,
    pub mode: &'static str,
    pub day: String,
    pub left: String,
}

pub(crate) struct Runs {
    pub href: String,
    pub rows: Vec<RunRow>,
    /// Newest first, those that the person may see.
    pub all: Vec<Run>,
}

pub(crate) struct RunRow {
    pub href: String,
    pub started: String,
    pub range: String,
    pub result: ResultShown,
}

impl Side {
    pub(crate) async fn read(
        app: &Dashboard,
        asked: &Asked,
        chain: ChainId,
        figures: &Figures,
        now_ms: u64,
    ) -> Result<Side, Problem> {
        let place = asked.place();
        let mut views = saved_views::of(app, asked).await?;
        views.retain(|view| view.is_pinned);
        let settings = app.service.admin.organisation_settings(place.tenant.id).await.map_err(of_admin)?;
        let zone = settings.time_zone.unwrap_or_else(|| zone::UTC.into());
        Ok(Side {
            notices: notice_list::read(app, asked, Some(place.tenant.id), &zone, NOTICES).await?,
            quota: quota(app, place, now_ms).await?,
            keys: keys(app, place, chain, now_ms).await?,
            views,
            due: cases::due_next(app, asked).await?,
            frameworks: coverage(place, chain.mode, figures),
            runs: runs(app, chain, &place.membership.grants).await?,
        })
    }
}

/// Of this month, for those who may see what the whole organisation uses.
async fn quota(app: &Dashboard, place: &Place, now_ms: u64) -> Result<Option<Quota>, Problem> {
    if !place.may(Capability::ViewUsage) {
        return Ok(None);
    }
    let used = app.service.store.usage(place.tenant.id, Month::of(now_ms)).await?;
    let of = app.service.admin.plan(&place.tenant.plan).and_then(|plan| plan.events_per_month);
    Ok(Some(Quota {
        used: number(used),
        of: of.map(|most| (most, used.min(most), most / 5 * 4, number(most))),
        href: format!("/app/o/{}/usage", place.tenant.id),
    }))
}

/// Of the project, in both modes: whoever looks after its keys looks after both.
async fn keys(
    app: &Dashboard,
    place: &Place,
    chain: ChainId,
    now_ms: u64,
) -> Result<Option<Expiring>, Problem> {
    if !place.may(Capability::ViewKeys) {
        return Ok(None);
    }
    let until_ms = now_ms.saturating_add(EXPIRING_MS);
    // One more than is shown tells whether there are more.
    let keys = app.service.control.keys_expiring(chain.project_id, now_ms, until_ms, KEYS_MAX + 1);
    let keys = keys.await.map_err(of_control)?;
    let row = |key: &ApiKey| {
        let ends_at_ms = key.expires_at_ms.unwrap_or(now_ms);
        KeyRow {
            name: visible(&key.name),
            mode: key.mode.as_str(),
            day: day(ends_at_ms),
            left: span(ends_at_ms.saturating_sub(now_ms)),
        }
    };
    Ok(Some(Expiring {
        href: format!("/app/o/{}/keys", place.tenant.id),
        rows: keys.iter().take(KEYS_MAX).map(row).collect(),
        has_more: keys.len() > KEYS_MAX,
    }))
}

/// Of the frameworks that are enabled. Test events are no evidence.
fn coverage(place: &Place, mode: Mode, figures: &Figures) -> Vec<Coverage> {
    let Some((project, _)) = place.chain.as_ref().filter(|_| mode == Mode::Live) else { return Vec::new() };
    let known = Catalog::builtin().frameworks.iter().enumerate();
    known
        .filter(|(index, _)| project.frameworks.contains(*index))
        .map(|(_, framework)| {
            let (seen, required) = figures::coverage(&framework.framework, figures);
            Coverage {
                label: framework.label.clone(),
                href: format!("{}/frameworks/{}", place.project_path(), framework.framework),
                seen,
                required,
            }
        })
        .collect()
}

/// Runs that reach beyond what somebody sees are like none, as their pages are.
async fn runs(app: &Dashboard, chain: ChainId, grants: &Grants) -> Result<Runs, Problem> {
    let mut all = app.service.verifications.runs(chain, None, RUNS_READ).await?;
    if is_window(grants) && !all.is_empty() {
        let seen = verification::seen(app, chain, grants).await?;
        all.retain(|run| seen.first <= run.from && run.to <= seen.last);
        all = all.into_iter().map(|run| run.within(&seen)).collect();
    }
    let href = verification::path(chain);
    let row = |run: &Run| RunRow {
        href: format!("{href}/{}", run.id),
        started: moment(run.created_at_ms),
        range: format!("#{} to #{}", number(run.from), number(run.to)),
        result: ResultShown::of(run),
    };
    Ok(Runs { rows: all.iter().take(RUNS_SHOWN).map(row).collect(), href, all })
}
