//! Times as text. Calendar arithmetic on integers only: a float or a time zone has no business near a hash.

use std::fmt;

pub const DAY_MS: u64 = 86_400_000;

/// The last millisecond that four digits of year can write.
pub const TIMESTAMP_MS_MAX: u64 = 253_402_300_799_999;

/// Days since 1970-01-01 of a date in the proleptic Gregorian calendar.
///
/// Counts in years that begin in March, so that the leap day is the last of its year and needs no case of its
/// own.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let march_year = if month <= 2 { year - 1 } else { year };
    let era = march_year.div_euclid(400);
    let year_of_era = march_year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month (1 to 12) and day of a count of days since 1970-01-01.
fn date_of(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * march_month + 2) / 5 + 1)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let next = if month == 12 { days_of(year + 1, 1, 1) } else { days_of(year, month + 1, 1) };
    next - days_of(year, month, 1)
}

/// `2026-11-15T02:00:39.123Z`, the form of every `timestamp`.
pub fn iso_ms(timestamp_ms: u64) -> String {
    let mut text = Vec::with_capacity(24);
    put_iso_ms(timestamp_ms, &mut text);
    String::from_utf8(text).expect("digits and letters")
}

/// The same, behind what is there: a page has a time for each of its events.
pub fn put_iso_ms(timestamp_ms: u64, out: &mut Vec<u8>) {
    let days = i64::try_from(timestamp_ms / DAY_MS).unwrap_or(i64::MAX);
    let (year, month, day) = date_of(days);
    let ms = timestamp_ms % DAY_MS;
    let parts = [
        (month.unsigned_abs(), b'-'),
        (day.unsigned_abs(), b'-'),
        (ms / 3_600_000, b'T'),
        (ms / 60_000 % 60, b':'),
        (ms / 1000 % 60, b':'),
    ];
    let digit = |number: u64| b'0' + u8::try_from(number % 10).expect("below ten");
    match u64::try_from(year) {
        Ok(year @ 0..=9999) => out.extend([year / 1000, year / 100, year / 10, year].map(digit)),
        _ => out.extend_from_slice(format!("{year:04}").as_bytes()),
    }
    for (number, before) in parts {
        out.extend([before, digit(number / 10), digit(number)]);
    }
    let ms = ms % 1000;
    out.extend([b'.', digit(ms / 100), digit(ms / 10), digit(ms), b'Z']);
}

/// Reads exactly the form that [`iso_ms`] writes.
pub fn parse_iso_ms(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    if bytes.len() != 24 || bytes[10] != b'T' || bytes[19] != b'.' || bytes[23] != b'Z' {
        return None;
    }
    // `Date` takes an earlier day for the first one, which would give a time a second spelling.
    if text < "1970" {
        return None;
    }
    let days = Date::parse(text.get(..10)?)?.days;
    let time = clock_of(text.get(11..19)?, 59)?;
    Some(days * DAY_MS + time * 1000 + number(text.get(20..23)?)?)
}

/// Returns true for an RFC 3339 time: any offset, any number of fraction digits, a leap second where one can
/// be.
pub fn is_rfc3339(text: &str) -> bool {
    rfc3339(text).is_some()
}

/// The millisecond that an RFC 3339 time names; nothing for one before 1970 or after 9999.
pub fn parse_rfc3339_ms(text: &str) -> Option<u64> {
    u64::try_from(rfc3339(text)?).ok().filter(|ms| *ms <= TIMESTAMP_MS_MAX)
}

fn rfc3339(text: &str) -> Option<i64> {
    let (year, month, day) = calendar_day(text.get(..10)?)?;
    if !matches!(text.as_bytes().get(10)?, b'T' | b't' | b' ') {
        return None;
    }
    let clock = clock_of(text.get(11..19)?, 60)?;
    let mut rest = text.get(19..)?;
    let mut ms = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        // What is finer than a millisecond is dropped, as a clock would.
        ms = number(&format!("{:0<3}", &fraction[..digits.min(3)]))?;
        rest = &fraction[digits..];
    }
    let offset_minutes = match rest {
        "Z" | "z" => 0,
        _ => {
            let offset = rest.strip_prefix(['+', '-'])?;
            if offset.len() != 5 || offset.as_bytes()[2] != b':' {
                return None;
            }
            let (hours, minutes) = (number(offset.get(..2)?)?, number(offset.get(3..)?)?);
            if hours >= 24 || minutes >= 60 {
                return None;
            }
            let minutes = i64::try_from(hours * 60 + minutes).ok()?;
            if rest.starts_with('-') { -minutes } else { minutes }
        }
    };
    let seconds = days_of(year, month, day) * 86_400 + i64::try_from(clock).ok()? - offset_minutes * 60;
    Some(seconds * 1000 + i64::try_from(ms).ok()?)
}

/// Year, month and day of `YYYY-MM-DD`, if the calendar has that day.
fn calendar_day(text: &str) -> Option<(i64, i64, i64)> {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' || !text.is_ascii() {
        return None;
    }
    let field = |range: std::ops::Range<usize>| number(&text[range]).and_then(|n| i64::try_from(n).ok());
    let (year, month, day) = (field(0..4)?, field(5..7)?, field(8..10)?);
    let exists = (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month);
    exists.then_some((year, month, day))
}

/// Seconds since midnight of `HH:MM:SS`.
fn clock_of(text: &str, second_max: u64) -> Option<u64> {
    let bytes = text.as_bytes();
    if bytes.len() != 8 || bytes[2] != b':' || bytes[5] != b':' {
        return None;
    }
    let (hour, minute, second) = (number(&text[..2])?, number(&text[3..5])?, number(&text[6..])?);
    (hour < 24 && minute < 60 && second <= second_max).then_some(hour * 3600 + minute * 60 + second)
}

/// Digits only: no sign and no space, which `str::parse` would let through.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A UTC calendar day from 1970 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    days: u64,
}

impl Date {
    /// Reads `YYYY-MM-DD`. Days before 1970 count as 1970-01-01: no event is older.
    pub fn parse(text: &str) -> Option<Date> {
        let (year, month, day) = calendar_day(text)?;
        Some(Date { days: u64::try_from(days_of(year, month, day)).unwrap_or(0) })
    }

    pub fn start_ms(self) -> u64 {
        self.days * DAY_MS
    }

    /// The first millisecond after the day.
    pub fn end_ms(self) -> u64 {
        (self.days + 1) * DAY_MS
    }
}

/// A UTC calendar month, the unit of quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month(pub u32);

impl Month {
    pub fn of(timestamp_ms: u64) -> Month {
        let (year, month, _) = date_of(i64::try_from(timestamp_ms / DAY_MS).unwrap_or(i64::MAX));
        Month(u32::try_from(year * 12 + month - 1).unwrap_or(u32::MAX))
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.0 / 12, self.0 % 12 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_have_milliseconds_and_read_back() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_164_800_001, "2024-02-29T00:00:00.001Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (TIMESTAMP_MS_MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(iso_ms(ms), text);
            assert_eq!(parse_iso_ms(text), Some(ms));
        }
    }

    #[test]
    fn every_day_of_four_centuries_reads_back() {
        for days in 0..146_097u64 {
            let text = iso_ms(days * DAY_MS);
            assert_eq!(Date::parse(&text[..10]).unwrap().days, days);
        }
    }

    #[test]
    fn other_spellings_of_a_timestamp_are_refused() {
        for text in [
            "2026-11-15T02:00:39Z",
            "2026-11-15T02:00:39.12Z",
            "2026-11-15T02:00:39.1234Z",
            "2026-11-15 02:00:39.123Z",
            "2026-11-15T02:00:39.123+00:00",
            "2026-11-15T24:00:00.000Z",
            "2026-11-15T02:60:00.000Z",
            "2026-11-15T02:00:60.000Z",
            "2026-11-15T02:00:+9.123Z",
            "1969-12-31T23:59:59.999Z",
            "0000-01-01T00:00:00.000Z",
            "",
        ] {
            assert_eq!(parse_iso_ms(text), None, "{text}");
        }
    }

    #[test]
    fn bad_dates_are_refused() {
        for text in [
            "2026-13-01",
            "2026-00-10",
            "2026-02-29",
            "2026-04-31",
            "2026-1-01",
            "26-01-01",
            "2026-01-0é",
            "2026/01/01",
        ] {
            assert_eq!(Date::parse(text), None, "{text}");
        }
        assert_eq!(
            Date::parse("2024-02-29").unwrap().end_ms() - Date::parse("2024-02-29").unwrap().start_ms(),
            DAY_MS
        );
        assert_eq!(Date::parse("0000-01-01").unwrap().start_ms(), 0);
    }

    #[test]
    fn rfc3339_times_are_told_from_others() {
        for text in [
            "2026-11-15T02:00:39Z",
            "2026-11-15t02:00:39z",
            "2026-11-15 02:00:39.5+05:30",
            "2016-12-31T23:59:60Z",
            "2026-11-15T02:00:39.123456789-12:00",
        ] {
            assert!(is_rfc3339(text), "{text}");
        }
        for text in [
            "2026-11-15",
            "2026-11-15T02:00:39",
            "2026-11-15T02:00:39.Z",
            "2026-11-15T02:00:39+5:30",
            "2026-11-15T02:00:39+24:00",
            "x",
            "2026-11-15T02:00:39Zé",
        ] {
            assert!(!is_rfc3339(text), "{text}");
        }
    }

    #[test]
    fn rfc3339_times_name_a_millisecond_whatever_their_offset() {
        let ms = |text| parse_rfc3339_ms(text);
        assert_eq!(ms("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(ms("2026-11-15T02:00:39.1Z"), parse_iso_ms("2026-11-15T02:00:39.100Z"));
        assert_eq!(ms("2026-11-15T04:30:39.123999+02:30"), parse_iso_ms("2026-11-15T02:00:39.123Z"));
        assert_eq!(ms("2026-11-14T21:00:39-05:00"), parse_iso_ms("2026-11-15T02:00:39.000Z"));
        assert_eq!(ms("1969-12-31T23:59:59Z"), None);
        assert_eq!(ms("2026-11-15"), None);
    }

    #[test]
    fn months_change_at_midnight_utc() {
        assert_eq!(Month::of(parse_iso_ms("2026-10-31T23:59:59.999Z").unwrap()).to_string(), "2026-10");
        assert_eq!(Month::of(parse_iso_ms("2026-11-01T00:00:00.000Z").unwrap()).to_string(), "2026-11");
    }
}
