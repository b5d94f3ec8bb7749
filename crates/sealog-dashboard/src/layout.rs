//! What surrounds a page.

use sealog_core::id::Mode;

use crate::app::Dashboard;
use crate::assets::Assets;
use crate::capability::Capability;
use crate::cookies::Theme;
use crate::front::Front;
use crate::request::{Asked, Place};
use crate::shortcuts;
use crate::text::{moment, visible};

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// For pages without the rail: signing in, problems.
pub(crate) struct Plain<'a> {
    assets: &'a Assets,
    /// Beneath which all pages are that this one leads to.
    base: &'static str,
    theme: Theme,
    here: String,
    pub docs_url: &'a str,
    pub version: &'static str,
}

impl<'a> Plain<'a> {
    pub(crate) fn new(app: &'a Dashboard, asked: &Asked) -> Plain<'a> {
        Plain::of(app, asked)
    }

    pub(crate) fn of<F: Front>(front: &'a F, asked: &Asked<F>) -> Plain<'a> {
        let query = if asked.query.is_empty() { String::new() } else { format!("?{}", asked.query) };
        Plain {
            assets: &front.site().assets,
            base: F::BASE,
            theme: Theme::of(&asked.headers),
            here: format!("{}{query}", asked.path),
            docs_url: &front.site().docs_url,
            version: VERSION,
        }
    }

    pub(crate) fn base(&self) -> &'static str {
        self.base
    }

    pub(crate) fn asset(&self, name: &str) -> &str {
        self.assets.path(name)
    }

    pub(crate) fn theme(&self) -> &'static str {
        self.theme.as_str()
    }

    pub(crate) fn next_theme(&self) -> &'static str {
        self.theme.next().as_str()
    }

    /// Where the theme's button leads back to.
    pub(crate) fn here(&self) -> &str {
        &self.here
    }
}

/// For pages with the rail.
pub(crate) struct Shell<'a> {
    pub plain: Plain<'a>,
    pub email: &'a str,
    pub place: Option<Rail>,
    /// Single keys do something.
    pub has_shortcuts: bool,
    /// When the page was made, for the head of each printed page.
    pub now: String,
}

pub(crate) struct Rail {
    pub organisation: String,
    pub role: &'static str,
    pub here: String,
    pub is_test: bool,
    /// The page is about the system chain, which no key can read.
    pub is_system: bool,
    /// Live and test of the project that the page is about.
    pub modes: Vec<Item>,
    pub projects: Vec<Item>,
    pub pages: Vec<Item>,
    /// The other pages about the chain that the page is about.
    pub about: Vec<Item>,
    pub more: Vec<Item>,
}

pub(crate) struct Item {
    pub href: String,
    pub icon: &'static str,
    pub label: String,
    pub is_current: bool,
    /// Places of the chain where it is known to be broken.
    pub broken: usize,
}

impl Item {
    /// The key that leads there behind a `g`.
    pub(crate) fn key(&self) -> Option<&'static str> {
        shortcuts::key_of(&self.label)
    }
}

/// The pages that the rail can mark as the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Current {
    Overview,
    Events,
    Frameworks,
    Usage,
    Verification,
    Exports,
    SystemLog,
    Actions,
    Cases,
    Keys,
    Projects,
    Members,
    Settings,
}

impl<'a> Shell<'a> {
    /// For the head of each printed page.
    pub(crate) fn organisation(&self) -> String {
        self.place.as_ref().map(|rail| rail.organisation.clone()).unwrap_or_default()
    }

    /// `production, live`; of a page about the whole organisation, its projects.
    pub(crate) fn scope(&self) -> String {
        let Some(rail) = &self.place else { return String::new() };
        let mode = rail.modes.iter().find(|mode| mode.is_current);
        let mode = mode.map(|mode| format!(", {}", mode.label.to_lowercase())).unwrap_or_default();
        format!("{}{mode}", rail.here)
    }

    pub(crate) fn is_system(&self) -> bool {
        self.place.as_ref().is_some_and(|rail| rail.is_system)
    }

    pub(crate) fn new(app: &'a Dashboard, asked: &'a Asked, current: Option<Current>) -> Shell<'a> {
        let rail = asked.place.as_ref().map(|place| rail(place, current, kept_page(&asked.path)));
        Shell {
            plain: Plain::new(app, asked),
            email: &asked.person().person.email,
            place: rail,
            has_shortcuts: shortcuts::are_on(&asked.headers),
            now: moment(app.service.world.now_ms()),
        }
    }

    pub(crate) fn shortcuts(&self) -> Vec<(String, String)> {
        shortcuts::all()
    }
}

/// Beside its events.
fn about_chain(place: &Place) -> Vec<(&'static str, &'static str, &'static str, Current)> {
    let mut pages = Vec::new();
    if place.may(Capability::Verify) {
        pages.push(("verify", "verify", "Verification", Current::Verification));
    }
    if place.may(Capability::Export) {
        pages.push(("exports", "export", "Exports", Current::Exports));
    }
    pages
}

/// The page that the same project has in its other mode, and another project, too.
fn kept_page(path: &str) -> &'static str {
    let mut parts = path.split('/').skip(2);
    match (parts.next(), parts.nth(2)) {
        (Some("p"), None) => "",
        (Some("p"), Some("verify")) => "/verify",
        (Some("p"), Some("exports")) => "/exports",
        (Some("p"), Some("frameworks")) => "/frameworks",
        _ => "/events",
    }
}

fn rail(place: &Place, shown: Option<Current>, page: &str) -> Rail {
    let current = shown;
    let tenant_id = place.tenant.id;
    // Where a page is about the whole organisation, events are those of its first project.
    let is_system = place.chain.as_ref().is_some_and(|(project, _)| project.id.is_system());
    let own = place.chain.clone().filter(|_| !is_system);
    let chain = own.or_else(|| Some((place.projects.first()?.clone(), Mode::Live)));
    // The system log has its own place in the rail, whichever of its pages it is.
    let current = if is_system { Some(Current::SystemLog) } else { current };
    let same_page = |project: &sealog_control::Project, mode: Mode| {
        format!("/app/p/{}/{}{page}", project.id, mode.as_str())
    };
    let item = |href, icon, label: &str, which| Item {
        href,
        icon,
        label: label.to_owned(),
        is_current: current == Some(which),
        broken: if which == Current::Verification { place.broken } else { 0 },
    };
    let mut pages = Vec::new();
    if let Some((project, mode)) = &chain {
        let of_project = |page: &str| format!("/app/p/{}/{}{page}", project.id, mode.as_str());
        pages.push(item(of_project(""), "overview", "Overview", Current::Overview));
        pages.push(item(of_project("/events"), "events", "Events", Current::Events));
        for (path, icon, label, which) in about_chain(place) {
            pages.push(item(of_project(&format!("/{path}")), icon, label, which));
        }
        if place.may(Capability::ViewFrameworks) {
            pages.push(item(of_project("/frameworks"), "layers", "Frameworks", Current::Frameworks));
        }
    }
    if place.may(Capability::ViewActions) {
        pages.push(item(format!("/app/o/{tenant_id}/actions"), "actions", "Actions", Current::Actions));
    }
    if place.may(Capability::ViewCases) {
        pages.push(item(format!("/app/o/{tenant_id}/cases"), "case", "Cases", Current::Cases));
    }
    if place.may(Capability::ViewKeys) {
        pages.push(item(format!("/app/o/{tenant_id}/keys"), "key", "API keys", Current::Keys));
    }
    if place.may(Capability::ViewUsage) {
        pages.push(item(format!("/app/o/{tenant_id}/usage"), "gauge", "Usage", Current::Usage));
    }
    let mut more = Vec::new();
    if place.may(Capability::ViewProjects) {
        more.push(item(format!("/app/o/{tenant_id}/projects"), "folder", "Projects", Current::Projects));
    }
    if place.may(Capability::ManageMembers) {
        more.push(item(format!("/app/o/{tenant_id}/members"), "people", "Members", Current::Members));
    }
    if place.may(Capability::ManageSettings) {
        more.push(item(format!("/app/o/{tenant_id}/settings"), "settings", "Settings", Current::Settings));
    }
    if place.may(Capability::SystemLog) && place.membership.grants.projects.is_none() {
        let href = format!("/app/o/{tenant_id}/system-log");
        more.push(item(href, "log", "System log", Current::SystemLog));
    }
    let about = place.chain.iter().filter(|_| is_system).flat_map(|(project, mode)| {
        let href = |path: &str| format!("/app/p/{}/{}/{path}", project.id, mode.as_str());
        let own = about_chain(place).into_iter().map(move |(path, icon, label, which)| Item {
            href: href(path),
            icon,
            label: label.to_owned(),
            is_current: shown == Some(which),
            broken: 0,
        });
        own.collect::<Vec<_>>()
    });
    let modes = place.chain.iter().filter(|_| !is_system).flat_map(|(project, mode)| {
        Mode::ALL.map(|other| Item {
            href: same_page(project, other),
            icon: "",
            label: if other == Mode::Live { "Live".into() } else { "Test".into() },
            is_current: other == *mode,
            broken: 0,
        })
    });
    let mode = chain.as_ref().map_or(Mode::Live, |(_, mode)| *mode);
    let here = place.chain.as_ref().map(|(project, _)| visible(&project.name));
    let is_limited = place.membership.grants.projects.is_some();
    let all = if is_limited { "Your projects" } else { "All projects" };
    Rail {
        organisation: visible(&place.tenant.name),
        role: place.role().rules().label,
        is_test: place.chain.as_ref().is_some_and(|(_, mode)| *mode == Mode::Test),
        is_system,
        modes: modes.collect(),
        projects: place
            .projects
            .iter()
            .map(|project| Item {
                href: same_page(project, mode),
                icon: "",
                label: visible(&project.name),
                is_current: place.chain.as_ref().is_some_and(|(current, _)| current.id == project.id),
                broken: 0,
            })
            .collect(),
        here: here.unwrap_or_else(|| all.into()),
        pages,
        about: about.collect(),
        more,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_mode_or_project_has_the_same_page_and_of_one_thing_its_list() {
        for (path, page) in [
            ("/app/p/x/live", ""),
            ("/app/p/x/live/events", "/events"),
            ("/app/p/x/live/events/01ARZ3NDEKTSV4RRFFQ69G5FAV", "/events"),
            ("/app/p/x/live/verify/run", "/verify"),
            ("/app/p/x/test/exports", "/exports"),
            ("/app/p/x/live/frameworks/soc2/change", "/frameworks"),
            ("/app/p/x/live/views", "/events"),
            ("/app/o/x/keys", "/events"),
            ("/app/account", "/events"),
        ] {
            assert_eq!(kept_page(path), page, "{path}");
        }
    }
}
