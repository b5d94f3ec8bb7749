//! The register: every request with its dates and its answer, as 11 CCR 7101 and Art. 5(2) GDPR ask for. Who
//! asked is not in it.

use jiff::civil;
use sealog_control::Control;
use sealog_control::{Case, CaseOutcome, CaseRegime, ListPage};
use sealog_core::id::TenantId;
use sealog_store::StoreError;

use super::clock::Calendar;
use super::dates::{CaseDates, dates_of, day_of};
use super::words::{Named, case_name};
use sealog_service::evidence::exports::put_safe_cell;

/// Cases of one year that are shown and counted; a note says when there are more.
pub const CASES_MAX: usize = 10_000;
const PAGE: usize = 500;

/// The columns of the file.
pub const COLUMNS: [&str; 14] = [
    "case",
    "received",
    "regime",
    "request",
    "manner",
    "confirmed",
    "extended",
    "paused_days",
    "due",
    "state",
    "answered",
    "response",
    "basis_of_denial",
    "days_used",
];

/// A line of the register.
#[derive(Clone, Debug)]
pub struct Line {
    pub case: Case,
    pub dates: CaseDates,
}

/// The register of a year, by the day of receipt (UTC).
#[derive(Clone, Debug)]
pub struct Register {
    pub year: u16,
    pub lines: Vec<Line>,
    /// There are more than [`CASES_MAX`].
    pub is_cut: bool,
}

/// The figures of a year, or of one regime in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub received: usize,
    pub fulfilled: usize,
    pub refused: usize,
    pub withdrawn: usize,
    pub open: usize,
    pub extended: usize,
    /// Answered after the last day, or open behind it.
    pub late: usize,
    /// Of those that were answered or refused; nothing where none was.
    pub median_days: Option<i64>,
}

/// The days of a year, in milliseconds.
fn year_ms(year: u16) -> Option<(u64, u64)> {
    let first = |year: u16| sealog_core::time::Date::parse(&format!("{year:04}-01-01"));
    Some((first(year)?.start_ms(), first(year.checked_add(1)?)?.start_ms()))
}

impl Register {
    pub async fn of_year(
        control: &Control,
        tenant_id: TenantId,
        year: u16,
        calendar: &Calendar,
        now_ms: u64,
    ) -> Result<Register, StoreError> {
        let mut register = Register { year, lines: Vec::new(), is_cut: false };
        let Some((from_ms, until_ms)) = year_ms(year) else { return Ok(register) };
        let mut after = None;
        loop {
            let page =
                control.cases_received(tenant_id, from_ms, until_ms, ListPage { after, limit: PAGE }).await?;
            let is_last = page.len() < PAGE;
            after = page.last().map(|case| case.id.0);
            for case in page {
                if register.lines.len() >= CASES_MAX {
                    register.is_cut = true;
                    return Ok(register);
                }
                let dates = dates_of(&case, calendar, now_ms);
                register.lines.push(Line { case, dates });
            }
            if is_last {
                return Ok(register);
            }
        }
    }

    /// For spreadsheets, and safe in them.
    pub fn csv(&self) -> Vec<u8> {
        let mut out = b"\xef\xbb\xbf".to_vec();
        out.extend_from_slice(COLUMNS.join(",").as_bytes());
        out.extend_from_slice(b"\r\n");
        for line in &self.lines {
            for (at, cell) in line.cells().iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                put_safe_cell(cell, &mut out);
            }
            out.extend_from_slice(b"\r\n");
        }
        out
    }

    /// Of all, and of each regime that there were requests under.
    pub fn figures(&self) -> Vec<(Option<CaseRegime>, Figures)> {
        let mut found = vec![(None, figures(self.lines.iter()))];
        for regime in CaseRegime::ALL.iter().copied() {
            let own = figures(self.lines.iter().filter(|line| line.case.intake.regime == regime));
            if own.received > 0 {
                found.push((Some(regime), own));
            }
        }
        found
    }
}

impl Line {
    pub fn is_late(&self) -> bool {
        self.dates.days_left < 0
    }

    /// In the order of [`COLUMNS`].
    pub fn cells(&self) -> [String; 14] {
        let Line { case, dates } = self;
        let day = |date: Option<civil::Date>| date.map_or(String::new(), |date| date.to_string());
        let answer = case.answer;
        let name = |text: Option<&'static str>| text.unwrap_or("").to_owned();
        [
            case_name(case),
            day(Some(day_of(case.intake.received_at_ms))),
            case.intake.regime.name().into(),
            case.intake.request_type.name().into(),
            case.intake.channel.name().into(),
            day(dates.confirmed_on),
            name(case.extension.map(|extension| extension.reason.name())),
            dates.paused_days.to_string(),
            dates.due.date.to_string(),
            case.state.name().into(),
            day(dates.answered_on),
            name(answer.map(|answer| answer.outcome.name())),
            name(answer.and_then(|answer| answer.ground).map(Named::name)),
            dates.days_used.to_string(),
        ]
    }
}

fn figures<'a>(lines: impl Iterator<Item = &'a Line>) -> Figures {
    let mut figures = Figures::default();
    let mut days = Vec::new();
    for line in lines {
        figures.received += 1;
        figures.extended += usize::from(line.case.extension.is_some());
        let outcome = line.case.answer.map(|answer| answer.outcome);
        match outcome {
            None => figures.open += 1,
            Some(CaseOutcome::Fulfilled) => figures.fulfilled += 1,
            Some(CaseOutcome::Refused) => figures.refused += 1,
            Some(CaseOutcome::Withdrawn) => figures.withdrawn += 1,
        }
        if outcome != Some(CaseOutcome::Withdrawn) {
            figures.late += usize::from(line.is_late());
        }
        if matches!(outcome, Some(CaseOutcome::Fulfilled | CaseOutcome::Refused)) {
            days.push(line.dates.days_used);
        }
    }
    days.sort_unstable();
    figures.median_days = days.get(days.len() / 2).copied();
    figures
}
