//! The register of a year: what authorities ask for, with figures. Who asked is not in it.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use sealog_cases::register::{CASES_MAX, Figures, Register};
use sealog_cases::words::Named;
use sealog_service::records::system_chain::{Actor, Recorder, actions};
use serde_json::json;

use crate::app::Dashboard;
use crate::layout::{Current, Shell};
use crate::pages::case_frame::may_see;
use crate::pages::verification_run::file;
use crate::problem::Problem;
use crate::request::{Asked, html};
use crate::text::number;
use crate::views;

/// Columns of the page: heading, which cell of the register's line, and which one below it. The file has a
/// column for each.
const SHOWN: [(&str, usize, Option<usize>); 10] = [
    ("Case", 0, None),
    ("Received", 1, Some(4)),
    ("Request", 3, Some(2)),
    ("Receipt confirmed", 5, None),
    ("Due", 8, Some(6)),
    ("Days paused", 7, None),
    ("State", 9, None),
    ("Answered", 10, Some(11)),
    ("Basis of denial", 12, None),
    ("Days used", 13, None),
];

/// Lines that the page shows; the file has all.
const SHOWN_MAX: usize = 500;

#[derive(Template)]
#[template(path = "pages/case_register.html")]
struct Page<'a> {
    shell: Shell<'a>,
    list: String,
    here: String,
    year: u16,
    years: [u16; 5],
    columns: [(&'static str, usize, Option<usize>); 10],
    rows: Vec<(String, [String; 14])>,
    is_cut: bool,
    /// Of all, and of each regime, in the order of the table's columns.
    figures: Vec<(&'static str, [String; 8])>,
    most: String,
}

async fn register(app: &Dashboard, asked: &Asked) -> Result<Register, Problem> {
    let place = asked.place();
    let now_ms = app.service.world.now_ms();
    let year = asked.query_value("year").and_then(|year| year.parse::<u16>().ok());
    let year = year.filter(|year| (1970..=9998).contains(year)).unwrap_or_else(|| this_year(now_ms));
    let calendar = app.service.cases.calendar(place.tenant.id).await?;
    let mut register =
        Register::of_year(&app.service.control, place.tenant.id, year, &calendar, now_ms).await?;
    register.lines.retain(|line| may_see(place, &line.case));
    Ok(register)
}

fn this_year(now_ms: u64) -> u16 {
    sealog_core::time::iso_ms(now_ms)[..4].parse().unwrap_or(1970)
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let register = register(&app, &asked).await?;
    let tenant_id = asked.place().tenant.id;
    let metadata = json!({ "page": "case_register", "year": register.year });
    views::seal(&app, &asked, &actions::PAGE_VIEWED, &format!("tenant/{tenant_id}"), metadata).await?;
    let list = format!("/app/o/{tenant_id}/cases");
    let this_year = this_year(app.service.world.now_ms());
    let row = |line: &sealog_cases::register::Line| (format!("{list}/{}", line.case.id.0), line.cells());
    let figures = register
        .figures()
        .into_iter()
        .map(|(regime, figures)| (regime.map_or("All", Named::name), numbers(&figures)));
    Ok(html(&Page {
        shell: Shell::new(&app, &asked, Some(Current::Cases)),
        here: format!("{list}/register"),
        year: register.year,
        years: [0, 1, 2, 3, 4].map(|back| this_year.saturating_sub(back)),
        columns: SHOWN,
        rows: register.lines.iter().rev().take(SHOWN_MAX).map(row).collect(),
        is_cut: register.is_cut || register.lines.len() > SHOWN_MAX,
        figures: figures.collect(),
        most: number(CASES_MAX as u64),
        list: list.clone(),
    }))
}

/// The file, for spreadsheets. It is sealed into the system chain before its first byte, whoever asks.
pub(crate) async fn csv(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let register = register(&app, &asked).await?;
    let tenant_id = asked.place().tenant.id;
    let recorder = Recorder::new(Actor::Person(asked.person().person.id), Arc::clone(&app.service.world));
    let metadata = json!({ "year": register.year, "cases": register.lines.len() });
    let record =
        recorder.record(&actions::CASE_REGISTER_DOWNLOADED, &format!("tenant/{tenant_id}"), metadata);
    app.service.drain.record_and_seal(tenant_id, record).await.map_err(|error| views::not_sealed(&error))?;
    let name = format!("case-register-{}.csv", register.year);
    Ok(file(register.csv(), "text/csv; charset=utf-8", &name))
}

fn numbers(figures: &Figures) -> [String; 8] {
    let Figures { received, fulfilled, refused, withdrawn, open, extended, late, median_days } = figures;
    let count = |count: &usize| number(*count as u64);
    let median = median_days.map_or("–".to_owned(), |days| days.to_string());
    let [a, b, c, d, e, f, g] = [received, fulfilled, refused, withdrawn, open, extended, late].map(count);
    [a, b, c, d, e, f, g, median]
}
