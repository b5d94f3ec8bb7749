//! When a request of a data subject must be answered: the law's time, holidays, extensions and pauses, and
//! why the date is what it is.
//!
//! A date is a day, and whoever asks says which one it is today. The law's time runs from the day of receipt.
//! A month ends on the same day of a later month, or on its last day where it has none (31 January, one
//! month: 28 or 29 February). An extension is counted from receipt too, not from the first date, which may
//! have been cut short by such a month end. Days on which the clock stood still are added; then a date on a
//! day off moves to the next working day. Authorities accept a pause only where the doubt is real, so the
//! date without pauses is always given beside the other.

use std::collections::BTreeSet;
use std::fmt;

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};

/// The law that a request is made under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regime {
    Gdpr,
    UkGdpr,
    Ccpa,
    /// Access to one's own records.
    HipaaAccess,
    /// An accounting of disclosures.
    HipaaAccounting,
    /// Days for the answer, and more if it is extended.
    Custom {
        days: u16,
        extension_days: u16,
    },
}

/// A stretch of the law's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    Months(u8),
    Days(u16),
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Period::Months(1) => f.write_str("one month"),
            Period::Months(months) => write!(f, "{months} months"),
            Period::Days(1) => f.write_str("one day"),
            Period::Days(days) => write!(f, "{days} days"),
        }
    }
}

impl Period {
    fn span(self) -> Span {
        match self {
            Period::Months(months) => i32::from(months).months(),
            Period::Days(days) => i32::from(days).days(),
        }
    }
}

impl Regime {
    /// For the answer, counted from receipt.
    pub fn period(self) -> Period {
        match self {
            Regime::Gdpr | Regime::UkGdpr => Period::Months(1),
            Regime::Ccpa => Period::Days(45),
            Regime::HipaaAccess => Period::Days(30),
            Regime::HipaaAccounting => Period::Days(60),
            Regime::Custom { days, .. } => Period::Days(days),
        }
    }

    /// The same with an extension that was announced, or nothing where there is none.
    pub fn extended(self) -> Option<Period> {
        match self {
            Regime::Gdpr | Regime::UkGdpr => Some(Period::Months(3)),
            Regime::Ccpa => Some(Period::Days(90)),
            Regime::HipaaAccess => Some(Period::Days(60)),
            Regime::HipaaAccounting => Some(Period::Days(90)),
            Regime::Custom { extension_days: 0, .. } => None,
            Regime::Custom { days, extension_days } => {
                Some(Period::Days(days.saturating_add(extension_days)))
            }
        }
    }

    /// Working days within which receipt must be confirmed, where that is asked for.
    pub fn confirmation_working_days(self) -> Option<u16> {
        (self == Regime::Ccpa).then_some(10)
    }

    /// Where the time stands in the law.
    pub fn source(self) -> &'static str {
        match self {
            Regime::Gdpr => "GDPR Art. 12(3)",
            Regime::UkGdpr => "UK GDPR Art. 12(3)",
            Regime::Ccpa => "CCPA, Cal. Civ. Code 1798.130(a)(2)",
            Regime::HipaaAccess => "HIPAA, 45 CFR 164.524(b)(2)",
            Regime::HipaaAccounting => "HIPAA, 45 CFR 164.528(c)(1)",
            Regime::Custom { .. } => "set for this case",
        }
    }
}

/// The organisation's days: where they begin, and which of them are off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    pub holidays: BTreeSet<Date>,
    /// UTC where the organisation has not chosen one.
    pub zone: TimeZone,
}

/// More days off in a row than any calendar has; a list of holidays without end must not be walked without
/// end.
const DAYS_OFF_MAX: usize = 400;

impl Default for Calendar {
    fn default() -> Calendar {
        Calendar { holidays: BTreeSet::new(), zone: TimeZone::UTC }
    }
}

impl Calendar {
    /// The day on which something happened.
    pub fn day_at(&self, timestamp_ms: u64) -> Date {
        let at = i64::try_from(timestamp_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        self.zone.to_datetime(at.unwrap_or(Timestamp::MAX)).date()
    }

    pub fn is_working_day(&self, date: Date) -> bool {
        !matches!(date.weekday(), Weekday::Saturday | Weekday::Sunday) && !self.holidays.contains(&date)
    }

    /// This day, or the next one on which work is done.
    fn working_day_from(&self, date: Date) -> Date {
        let mut days = date.series(1.day()).take(DAYS_OFF_MAX);
        days.find(|day| self.is_working_day(*day)).unwrap_or(date)
    }

    /// The day on which so many working days have passed since a date, which itself does not count.
    fn after_working_days(&self, date: Date, count: u16) -> Date {
        let days = date.series(1.day()).skip(1).take(DAYS_OFF_MAX + 2 * usize::from(count));
        let mut working = days.filter(|day| self.is_working_day(*day));
        match count.checked_sub(1) {
            None => date,
            Some(before) => working.nth(usize::from(before)).unwrap_or(date),
        }
    }
}

/// A time in which the organisation waits for the person: from this day, until the day on which it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    pub from: Date,
    /// Nothing while it lasts.
    pub until: Option<Date>,
}

/// What is known of a case's time.
#[derive(Clone, Debug)]
pub struct Clock {
    pub regime: Regime,
    pub received: Date,
    pub is_extended: bool,
    pub pauses: Vec<Pause>,
}

/// Why a date is what it is, in the order in which it was worked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Received(Date),
    /// So much from receipt is this day.
    Period(Period, Date),
    /// The last day of a month that has no such day.
    MonthEnd(Date),
    Extended(Period, Date),
    /// Days on which the clock stood still.
    Paused {
        days: u32,
        from: Date,
        until: Option<Date>,
    },
    /// The day was none on which work is done.
    DayOff {
        was: Date,
        is: Date,
    },
}

/// The last day for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub date: Date,
    /// As if there had been no pause.
    pub without_pauses: Date,
    /// The clock stands still, and the date moves with each day.
    pub is_paused: bool,
    pub reasons: Vec<Reason>,
}

impl Clock {
    /// As things are on this day.
    pub fn due(&self, calendar: &Calendar, today: Date) -> Due {
        let mut reasons = vec![Reason::Received(self.received)];
        let period = self.regime.period();
        let first = later(self.received, period);
        reasons.push(Reason::Period(period, first));
        let extended = self.regime.extended().filter(|_| self.is_extended);
        let lawful = match extended {
            None => first,
            Some(period) => {
                let date = later(self.received, period);
                reasons.push(Reason::Extended(period, date));
                date
            }
        };
        if matches!(extended.unwrap_or(period), Period::Months(_)) && lawful.day() != self.received.day() {
            reasons.push(Reason::MonthEnd(lawful));
        }
        let (mut paused, mut is_paused) = (0, false);
        for (pause, days) in self.paused_days(today) {
            reasons.push(Reason::Paused { days, from: pause.from, until: pause.until });
            is_paused |= pause.until.is_none();
            paused += days;
        }
        let date = moved(lawful, paused);
        let working = calendar.working_day_from(date);
        if working != date {
            reasons.push(Reason::DayOff { was: date, is: working });
        }
        Due { date: working, without_pauses: calendar.working_day_from(lawful), is_paused, reasons }
    }

    /// The last day on which an extension can be announced: the end of the first period, pauses included.
    pub fn extension_until(&self, calendar: &Calendar, today: Date) -> Option<Date> {
        self.regime.extended()?;
        Some(Clock { is_extended: false, ..self.clone() }.due(calendar, today).date)
    }

    /// The last day on which receipt can be confirmed in time, where that is asked for.
    pub fn confirm_until(&self, calendar: &Calendar) -> Option<Date> {
        let days = self.regime.confirmation_working_days()?;
        Some(calendar.after_working_days(self.received, days))
    }

    /// Each pause with its days. A day is counted once, however many pauses it is in, and none before receipt
    /// or after today.
    fn paused_days(&self, today: Date) -> Vec<(Pause, u32)> {
        let mut sorted = self.pauses.clone();
        sorted.sort_by_key(|pause| (pause.from, pause.until));
        let mut counted_to = self.received;
        sorted
            .into_iter()
            .map(|pause| {
                let from = pause.from.max(counted_to);
                let until = pause.until.unwrap_or(today);
                let days = u32::try_from(days_between(from, until)).unwrap_or(0);
                counted_to = counted_to.max(until);
                (pause, days)
            })
            .collect()
    }
}

fn later(date: Date, period: Period) -> Date {
    date.saturating_add(period.span())
}

fn moved(date: Date, days: u32) -> Date {
    date.saturating_add(i64::from(days).days())
}

/// Negative if the second is before the first.
fn days_between(from: Date, until: Date) -> i64 {
    from.until(until).map_or(0, |span| i64::from(span.get_days()))
}

/// Days from today to the last one: negative when it is over.
pub fn days_left(due: Date, today: Date) -> i64 {
    days_between(today, due)
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    fn clock(regime: Regime, received: Date) -> Clock {
        Clock { regime, received, is_extended: false, pauses: Vec::new() }
    }

    fn calendar(holidays: &[Date]) -> Calendar {
        Calendar { holidays: holidays.iter().copied().collect(), ..Calendar::default() }
    }

    /// Worked out by hand with a printed calendar: regime, receipt, extended, pauses, holidays, last day,
    /// last day without pauses.
    #[test]
    fn the_calendar_agrees_with_a_table_worked_out_by_hand() {
        let gdpr = Regime::Gdpr;
        let closed = |from, until| Pause { from, until: Some(until) };
        let new_year = [date(2027, 1, 1)];
        let easter = [date(2026, 4, 3), date(2026, 4, 6)];
        let christmas = [date(2026, 12, 25), date(2026, 12, 28)];
        let none: &[Date] = &[];
        /// Regime, receipt, whether it is extended, pauses, holidays; due, and due without the pauses.
        type Row<'a> = (Regime, Date, bool, &'a [Pause], &'a [Date], Date, Date);
        let table: &[Row<'_>] = &[
            // An ordinary month: Monday 2 November to Wednesday 2 December.
            (gdpr, date(2026, 11, 2), false, &[], none, date(2026, 12, 2), date(2026, 12, 2)),
            // 31 January has no 31 February: 28 February 2026 is a Saturday, so Monday 2 March.
            (gdpr, date(2026, 1, 31), false, &[], none, date(2026, 3, 2), date(2026, 3, 2)),
            // 2028 is a leap year: Tuesday 29 February.
            (gdpr, date(2028, 1, 31), false, &[], none, date(2028, 2, 29), date(2028, 2, 29)),
            (gdpr, date(2028, 1, 29), false, &[], none, date(2028, 2, 29), date(2028, 2, 29)),
            // From 29 February to 29 March, a Wednesday.
            (gdpr, date(2028, 2, 29), false, &[], none, date(2028, 3, 29), date(2028, 3, 29)),
            // 2100 is none, and 28 February 2100 is a Sunday.
            (gdpr, date(2100, 1, 31), false, &[], none, date(2100, 3, 1), date(2100, 3, 1)),
            // 30 November, a month: 30 December, a Wednesday. 1 December: Friday 1 January, a holiday, so
            // Monday 4.
            (gdpr, date(2026, 11, 30), false, &[], &new_year, date(2026, 12, 30), date(2026, 12, 30)),
            (gdpr, date(2026, 12, 1), false, &[], &new_year, date(2027, 1, 4), date(2027, 1, 4)),
            // Good Friday, the weekend and Easter Monday in a row: Tuesday 7 April.
            (gdpr, date(2026, 3, 3), false, &[], &easter, date(2026, 4, 7), date(2026, 4, 7)),
            // Extended from receipt: 31 January and three months is 30 April, a Thursday, not 28 April.
            (gdpr, date(2026, 1, 31), true, &[], none, date(2026, 4, 30), date(2026, 4, 30)),
            // A pause of ten days across the end of January: 12 February and ten days, Sunday 22, so Monday
            // 23.
            (
                gdpr,
                date(2026, 1, 12),
                false,
                &[closed(date(2026, 1, 25), date(2026, 2, 4))],
                none,
                date(2026, 2, 23),
                date(2026, 2, 12),
            ),
            // Two that overlap count once: 1 to 11 June, then 8 to 15 June, are 14 days. 4 June: Saturday 4
            // July and 14 less the three before receipt: 11 days, Wednesday 15.
            (
                gdpr,
                date(2026, 6, 4),
                false,
                &[closed(date(2026, 6, 1), date(2026, 6, 11)), closed(date(2026, 6, 8), date(2026, 6, 15))],
                none,
                date(2026, 7, 15),
                date(2026, 7, 6),
            ),
            // 30 January 2027 has no 30 February: Sunday 28, so Monday 1 March. 31 March: Thursday 30 April.
            // 31 August: Wednesday 30 September.
            (gdpr, date(2027, 1, 30), false, &[], none, date(2027, 3, 1), date(2027, 3, 1)),
            (gdpr, date(2026, 3, 31), false, &[], none, date(2026, 4, 30), date(2026, 4, 30)),
            (gdpr, date(2026, 8, 31), false, &[], none, date(2026, 9, 30), date(2026, 9, 30)),
            // 29 February 2028 and three months: Monday 29 May.
            (gdpr, date(2028, 2, 29), true, &[], none, date(2028, 5, 29), date(2028, 5, 29)),
            // A holiday on Friday, the weekend, and the Monday on which another one is made up for: Tuesday
            // 29 December.
            (gdpr, date(2026, 11, 25), false, &[], &christmas, date(2026, 12, 29), date(2026, 12, 29)),
            // 13 days across the end of February, from the 28th that stands for the 31st: Friday 13 March.
            // Without them, Monday 2 March.
            (
                gdpr,
                date(2026, 1, 31),
                false,
                &[closed(date(2026, 2, 20), date(2026, 3, 5))],
                none,
                date(2026, 3, 13),
                date(2026, 3, 2),
            ),
            // 7 days across the end of the year: Friday 15 January and 7 days.
            (
                gdpr,
                date(2026, 12, 15),
                false,
                &[closed(date(2026, 12, 28), date(2027, 1, 4))],
                &new_year,
                date(2027, 1, 22),
                date(2027, 1, 15),
            ),
            // 45 days across 29 February: Sunday 5 March 2028, so Monday. 30 days from 31 January 2027:
            // Tuesday 2 March.
            (Regime::Ccpa, date(2028, 1, 20), false, &[], none, date(2028, 3, 6), date(2028, 3, 6)),
            (Regime::HipaaAccess, date(2027, 1, 31), false, &[], none, date(2027, 3, 2), date(2027, 3, 2)),
            // A pause that ended on the day on which it began is none.
            (
                gdpr,
                date(2026, 11, 2),
                false,
                &[closed(date(2026, 11, 5), date(2026, 11, 5))],
                none,
                date(2026, 12, 2),
                date(2026, 12, 2),
            ),
            (Regime::UkGdpr, date(2026, 5, 29), false, &[], none, date(2026, 6, 29), date(2026, 6, 29)),
            // 45 days from 2 November: 17 December. 90: 31 January 2027, a Sunday, so 1 February.
            (Regime::Ccpa, date(2026, 11, 2), false, &[], none, date(2026, 12, 17), date(2026, 12, 17)),
            (Regime::Ccpa, date(2026, 11, 2), true, &[], none, date(2027, 2, 1), date(2027, 2, 1)),
            // 30 days from 2 November: 2 December. 60: 1 January 2027.
            (Regime::HipaaAccess, date(2026, 11, 2), false, &[], none, date(2026, 12, 2), date(2026, 12, 2)),
            (
                Regime::HipaaAccess,
                date(2026, 11, 2),
                true,
                &[],
                &new_year,
                date(2027, 1, 4),
                date(2027, 1, 4),
            ),
            (
                Regime::HipaaAccounting,
                date(2026, 11, 2),
                false,
                &[],
                &new_year,
                date(2027, 1, 4),
                date(2027, 1, 4),
            ),
            (Regime::HipaaAccounting, date(2026, 11, 2), true, &[], none, date(2027, 2, 1), date(2027, 2, 1)),
            (
                Regime::Custom { days: 10, extension_days: 5 },
                date(2026, 11, 2),
                false,
                &[],
                none,
                date(2026, 11, 12),
                date(2026, 11, 12),
            ),
            (
                Regime::Custom { days: 10, extension_days: 5 },
                date(2026, 11, 2),
                true,
                &[],
                none,
                date(2026, 11, 17),
                date(2026, 11, 17),
            ),
        ];
        for (regime, received, is_extended, pauses, holidays, expected, without) in table {
            let clock = Clock {
                regime: *regime,
                received: *received,
                is_extended: *is_extended,
                pauses: pauses.to_vec(),
            };
            let due = clock.due(&calendar(holidays), date(2026, 12, 31));
            assert_eq!((due.date, due.without_pauses), (*expected, *without), "{clock:?}: {:?}", due.reasons);
        }
    }

    #[test]
    fn while_a_pause_lasts_the_date_moves_with_each_day_and_says_so() {
        let mut clock = clock(Regime::Gdpr, date(2026, 11, 2));
        clock.pauses.push(Pause { from: date(2026, 11, 10), until: None });
        for (today, expected) in [
            (date(2026, 11, 10), date(2026, 12, 2)),
            (date(2026, 11, 11), date(2026, 12, 3)),
            (date(2026, 11, 20), date(2026, 12, 14)),
        ] {
            let due = clock.due(&Calendar::default(), today);
            assert_eq!((due.date, due.is_paused), (expected, true), "{today}");
        }
    }

    #[test]
    fn every_step_is_among_the_reasons_in_order() {
        let mut clock = clock(Regime::Gdpr, date(2026, 1, 31));
        clock.is_extended = true;
        let pause = Pause { from: date(2026, 2, 3), until: Some(date(2026, 2, 5)) };
        clock.pauses.push(pause);
        let due = clock.due(&Calendar::default(), date(2026, 2, 10));
        let expected = [
            Reason::Received(date(2026, 1, 31)),
            Reason::Period(Period::Months(1), date(2026, 2, 28)),
            Reason::Extended(Period::Months(3), date(2026, 4, 30)),
            Reason::MonthEnd(date(2026, 4, 30)),
            Reason::Paused { days: 2, from: pause.from, until: pause.until },
            Reason::DayOff { was: date(2026, 5, 2), is: date(2026, 5, 4) },
        ];
        assert_eq!(due.reasons, expected);
    }

    #[test]
    fn an_extension_is_announced_within_the_first_period() {
        let clock = clock(Regime::Gdpr, date(2026, 11, 2));
        let until = clock.extension_until(&Calendar::default(), date(2026, 11, 3));
        assert_eq!(until, Some(date(2026, 12, 2)));
        let extended = Clock { is_extended: true, ..clock.clone() };
        assert_eq!(extended.extension_until(&Calendar::default(), date(2026, 11, 3)), until);
        let custom = Clock { regime: Regime::Custom { days: 10, extension_days: 0 }, ..clock };
        assert_eq!(custom.extension_until(&Calendar::default(), date(2026, 11, 3)), None);
    }

    #[test]
    fn ccpa_asks_for_a_confirmation_within_ten_working_days() {
        // Thursday 19 November: the 20th is the first, Thursday 26 (Thanksgiving) is off, so the tenth is
        // Friday 4 December.
        let calendar = calendar(&[date(2026, 11, 26)]);
        let confirm = clock(Regime::Ccpa, date(2026, 11, 19)).confirm_until(&calendar);
        assert_eq!(confirm, Some(date(2026, 12, 4)));
        assert_eq!(clock(Regime::Gdpr, date(2026, 11, 19)).confirm_until(&calendar), None);
    }

    #[test]
    fn dates_at_the_end_of_time_and_holidays_without_end_are_survived() {
        let last = clock(Regime::Gdpr, Date::MAX).due(&Calendar::default(), Date::MIN);
        assert_eq!(last.without_pauses, last.date);
        let holidays = date(2026, 1, 1).series(1.day()).take(3000).collect();
        let due = clock(Regime::Gdpr, date(2026, 2, 2))
            .due(&Calendar { holidays, ..Calendar::default() }, date(2026, 2, 2));
        assert_eq!(due.date, date(2026, 3, 2));
    }

    #[test]
    fn days_left_go_below_zero_when_it_is_over() {
        assert_eq!(days_left(date(2026, 12, 2), date(2026, 11, 30)), 2);
        assert_eq!(days_left(date(2026, 12, 2), date(2026, 12, 5)), -3);
        assert_eq!(days_left(date(2027, 3, 1), date(2026, 3, 1)), 365);
    }
}
