//! What surrounds a page of the console.

use askama::Template;
use axum::response::Response;

use super::console::{Console, OpsAsked};
use crate::gate::Gate;
use crate::layout::Plain;
use crate::problem::{Framing, Shown};
use crate::request::html;

/// For pages with the rail.
pub(super) struct Shell<'a> {
    pub plain: Plain<'a>,
    pub email: &'a str,
    pub items: Vec<Item>,
}

pub(super) struct Item {
    pub href: &'static str,
    pub icon: &'static str,
    pub label: &'static str,
    pub is_current: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Current {
    Tenants,
    Losses,
    Jobs,
    Outbox,
    Storage,
    System,
}

const ITEMS: &[(Current, &str, &str, &str)] = &[
    (Current::Tenants, "/ops/tenants", "people", "Tenants"),
    (Current::Losses, "/ops/losses", "warn", "Losses"),
    (Current::Jobs, "/ops/jobs", "clock", "Jobs"),
    (Current::Outbox, "/ops/outbox", "log", "Mail outbox"),
    (Current::Storage, "/ops/storage", "layers", "Storage"),
    (Current::System, "/ops/system", "gauge", "System"),
];

impl<'a> Shell<'a> {
    pub(super) fn new(
        console: &'a Console,
        asked: &'a OpsAsked,
        current: impl Into<Option<Current>>,
    ) -> Shell<'a> {
        let current = current.into();
        let item = |(which, href, icon, label): &(Current, &'static str, &'static str, &'static str)| Item {
            href,
            icon,
            label,
            is_current: current == Some(*which),
        };
        Shell {
            plain: Plain::of(console, asked),
            email: &asked.operator().user.email,
            items: ITEMS.iter().map(item).collect(),
        }
    }
}

#[derive(Template)]
#[template(path = "ops/problem.html")]
struct Framed<'a> {
    shell: Shell<'a>,
    shown: Shown,
}

impl Framing for Console {
    fn framed(&self, asked: &OpsAsked, shown: Shown) -> Result<Response, Shown> {
        match &asked.who {
            Some(who) if Console::next_step(who).is_none() => {
                Ok(html(&Framed { shell: Shell::new(self, asked, None), shown }))
            }
            _ => Err(shown),
        }
    }
}
