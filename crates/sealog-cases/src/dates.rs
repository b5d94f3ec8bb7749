//! When a case is due: its own dates, and the organisation's days off.
//!
//! A day that somebody wrote down (of receipt, of an announcement) is that day wherever it is read, and is
//! kept as its beginning in UTC. What happened at a moment (a pause, an answer, now) is on the day that it
//! was in the organisation's time zone.

use sealog_control::Control;
use std::collections::BTreeSet;

use jiff::ToSpan;
use jiff::civil::Date;
use sealog_control::{Case, CasePause, CaseRegime, Intake};
use sealog_core::id::TenantId;
use sealog_core::time::DAY_MS;
use sealog_store::StoreError;

use super::clock::{self, Calendar, Clock, Due, Pause, Reason, Regime};
use sealog_service::people::admin::FieldError;
use sealog_service::people::organisation;
use sealog_service::zone;

/// The setting's name in control data.
pub(super) const HOLIDAYS: &str = "case_holidays";
/// Ten days off a year, for fifty years.
pub const HOLIDAYS_MAX: usize = 500;

const DAYS_MAX: i64 = 2_932_896;
const EPOCH: Date = jiff::civil::date(1970, 1, 1);

/// A day that was written down.
pub fn day_of(ms: u64) -> Date {
    from_number(i64::try_from(ms / DAY_MS).unwrap_or(i64::MAX))
}

/// Days from 1970.
pub fn to_number(date: Date) -> i64 {
    clock::days_left(date, EPOCH)
}

pub fn from_number(days: i64) -> Date {
    // The last day that can be written down is in the year 9999.
    EPOCH.saturating_add(days.clamp(0, DAYS_MAX).days())
}

/// The beginning of a day, for fields of events.
pub fn start_ms(date: Date) -> u64 {
    u64::try_from(to_number(date)).unwrap_or(0).saturating_mul(DAY_MS)
}

/// `Friday 27 November 2026`
pub fn long_day(date: Date) -> String {
    date.strftime("%A %-d %B %Y").to_string()
}

pub fn regime_of(intake: &Intake) -> Regime {
    let (days, extension_days) = intake.custom_days.unwrap_or((30, 0));
    let short = |days: u32| u16::try_from(days).unwrap_or(u16::MAX);
    match intake.regime {
        CaseRegime::Gdpr => Regime::Gdpr,
        CaseRegime::UkGdpr => Regime::UkGdpr,
        CaseRegime::Ccpa => Regime::Ccpa,
        CaseRegime::HipaaAccess => Regime::HipaaAccess,
        CaseRegime::HipaaAccounting => Regime::HipaaAccounting,
        CaseRegime::Custom => Regime::Custom { days: short(days), extension_days: short(extension_days) },
    }
}

pub fn clock_of(case: &Case, calendar: &Calendar) -> Clock {
    let day_at = |at_ms| calendar.day_at(at_ms);
    let pause = |pause: &CasePause| Pause { from: day_at(pause.from_ms), until: pause.until_ms.map(day_at) };
    Clock {
        regime: regime_of(&case.intake),
        received: day_of(case.intake.received_at_ms),
        is_extended: case.extension.is_some(),
        pauses: case.pauses.iter().map(pause).collect(),
    }
}

/// All that is known of a case's time.
#[derive(Clone, Debug)]
pub struct CaseDates {
    pub due: Due,
    /// Now, whether it was answered or not.
    pub today: Date,
    pub answered_on: Option<Date>,
    pub confirmed_on: Option<Date>,
    /// The name of the zone that days are of.
    pub zone: String,
    /// Below zero when it is over. Of a case that was answered: on the day of the answer.
    pub days_left: i64,
    pub days_used: i64,
    pub paused_days: u32,
    /// The last day on which an extension can be announced, where there can be one.
    pub extension_until: Option<Date>,
    /// The last day on which receipt can be confirmed in time, where that is asked for.
    pub confirm_until: Option<Date>,
}

/// As things are now, or were when it was answered.
pub fn dates_of(case: &Case, calendar: &Calendar, now_ms: u64) -> CaseDates {
    let (today, answered_on) =
        (calendar.day_at(now_ms), case.answer.map(|answer| calendar.day_at(answer.at_ms)));
    let until = answered_on.unwrap_or(today);
    let clock = clock_of(case, calendar);
    let due = clock.due(calendar, until);
    let paused_days = due.reasons.iter().map(|reason| match reason {
        Reason::Paused { days, .. } => *days,
        _ => 0,
    });
    CaseDates {
        today,
        answered_on,
        zone: calendar.zone.iana_name().unwrap_or(zone::UTC).to_owned(),
        confirmed_on: case.confirmed_at_ms.map(|at_ms| calendar.day_at(at_ms)),
        days_left: clock::days_left(due.date, until),
        days_used: clock::days_left(until, clock.received),
        paused_days: paused_days.sum(),
        extension_until: clock.extension_until(calendar, until),
        confirm_until: clock.confirm_until(calendar),
        due,
    }
}

/// The day on which the answer is due if the time is extended, or was.
pub fn extended_due(case: &Case, calendar: &Calendar, now_ms: u64) -> Date {
    let until = case.answer.map_or(now_ms, |answer| answer.at_ms);
    let clock = Clock { is_extended: true, ..clock_of(case, calendar) };
    clock.due(calendar, calendar.day_at(until)).date
}

/// A reason as a sentence.
pub fn described(reason: &Reason) -> String {
    match reason {
        Reason::Received(date) => format!("Received {}.", long_day(*date)),
        Reason::Period(period, date) => format!("{period} from receipt: {}.", long_day(*date)),
        Reason::MonthEnd(date) => {
            format!("That month has no such day, so its last day counts: {}.", long_day(*date))
        }
        Reason::Extended(period, date) => {
            format!("Extended to {period} from receipt: {}.", long_day(*date))
        }
        Reason::Paused { days, from, until } => {
            let days = if *days == 1 { "one day".to_owned() } else { format!("{days} days") };
            let until = until.map_or("still paused".to_owned(), |until| format!("until {}", long_day(until)));
            format!("Paused from {}, {until}: {days} more.", long_day(*from))
        }
        Reason::DayOff { was, is } => {
            format!("{} is not a working day, so the next one counts: {}.", long_day(*was), long_day(*is))
        }
    }
}

/// The organisation's days: its time zone, and those off besides Saturdays and Sundays.
pub async fn calendar(control: &Control, tenant_id: TenantId) -> Result<Calendar, StoreError> {
    let text = control.setting(tenant_id, HOLIDAYS.into()).await?;
    let days: Vec<String> = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let zone = control.setting(tenant_id, organisation::TIME_ZONE.into()).await?;
    let zone = zone.as_deref().and_then(organisation::text).unwrap_or_else(|| zone::UTC.into());
    Ok(Calendar {
        holidays: days.iter().filter_map(|day| day.parse().ok()).collect(),
        zone: zone::by_name(&zone),
    })
}

/// One in each line, as a form has them.
pub fn parse_holidays(text: &str) -> Result<BTreeSet<Date>, FieldError> {
    let mut holidays = BTreeSet::new();
    let written = text.lines().map(str::trim).filter(|line| !line.is_empty());
    for (at, line) in written.enumerate() {
        if at >= HOLIDAYS_MAX {
            return Err(FieldError::new("holidays", format!("Enter at most {HOLIDAYS_MAX} days")));
        }
        let known = sealog_core::time::Date::parse(line).and_then(|_| line.parse::<Date>().ok());
        let shown: String = line.chars().take(40).collect();
        let problem = || format!("{shown:?} is not a date. Use 2026-12-25");
        holidays.insert(known.ok_or_else(|| FieldError::new("holidays", problem()))?);
    }
    Ok(holidays)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    #[test]
    fn days_are_counted_from_1970_both_ways() {
        for (number, day) in
            [(0, date(1970, 1, 1)), (20_772, date(2026, 11, 15)), (47_540, date(2100, 2, 28))]
        {
            assert_eq!((to_number(day), from_number(number)), (number, day));
        }
        assert_eq!(day_of(20_772 * DAY_MS + DAY_MS - 1), date(2026, 11, 15));
        assert_eq!(start_ms(date(2026, 11, 15)), 20_772 * DAY_MS);
        assert_eq!(day_of(u64::MAX), from_number(i64::MAX), "no time is too large to be shown");
    }

    #[test]
    fn holidays_are_one_day_in_each_line_and_not_without_end() {
        let days = parse_holidays("2026-12-25\r\n\n 2026-01-01 \n2026-12-25").unwrap();
        assert_eq!(days.into_iter().collect::<Vec<_>>(), [date(2026, 1, 1), date(2026, 12, 25)]);
        for wrong in ["25.12.2026", "2026-02-30", "2026-12-25 Christmas", "2026-12-25T00:00:00"] {
            assert!(parse_holidays(wrong).is_err(), "{wrong}");
        }
        let many = "2026-01-01\n".repeat(HOLIDAYS_MAX);
        assert!(parse_holidays(&many).is_ok());
        assert!(parse_holidays(&format!("{many}2026-01-02")).is_err());
    }
}
