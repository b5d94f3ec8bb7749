//! Charts as the server draws them: where each shape stands, in numbers that templates write as attributes.
//! Colours are classes, and every chart has its words and its table.

use crate::text::{number, short_day};

const WIDTH: u64 = 900;
const HEIGHT: u64 = 176;
/// Lines across, besides the one at the bottom.
const STEPS: u64 = 3;

/// A bar for each day. `chart_bars.html` draws it.
pub(crate) struct Bars {
    /// Of the title and of the table.
    pub title: String,
    /// What the picture shows, in words.
    pub summary: String,
    pub bars: Vec<Bar>,
    pub lines: Vec<String>,
    /// From the top.
    pub scale: Vec<String>,
    /// Below it.
    pub days: Vec<String>,
}

pub(crate) struct Bar {
    /// Events of that day, where one list has them.
    pub href: Option<String>,
    pub day: String,
    pub events: String,
    /// The day has not ended.
    pub is_open: bool,
    pub hit_x: String,
    pub hit_width: String,
    pub x: String,
    pub y: String,
    pub width: String,
    pub height: String,
}

/// One decimal place, from tenths.
fn tenths(value: u64) -> String {
    format!("{}.{}", value / 10, value % 10)
}

/// A number that people find on a scale, and that the highest bar does not pass: 1, 2, 2.5 or 5 times a power
/// of ten for each step.
fn scale_max(highest: u64) -> u64 {
    let mut power = 1u64;
    loop {
        for tenths in [10, 20, 25, 50] {
            let step = power.saturating_mul(tenths) / 10;
            if step > 0 && step.saturating_mul(STEPS) >= highest {
                return step.saturating_mul(STEPS);
            }
        }
        match power.checked_mul(10) {
            Some(next) => power = next,
            None => return u64::MAX,
        }
    }
}

impl Bars {
    /// `days` in order, without gaps; `today` has not ended yet.
    pub(crate) fn new(
        title: &str,
        days: &[(u32, u64)],
        today: u32,
        href: impl Fn(u32) -> Option<String>,
    ) -> Bars {
        let highest = days.iter().max_by_key(|(day, events)| (*events, u32::MAX - day)).copied();
        let top = scale_max(highest.map_or(0, |(_, events)| events)).max(STEPS);
        let slot = WIDTH * 10 / (days.len().max(1) as u64);
        let gap = slot / 10;
        let bars = (0..).zip(days).map(|(at, (day, events))| {
            // What is there is seen, however little it is.
            let height = scaled(*events, top, HEIGHT * 10).max(if *events > 0 { 10 } else { 0 });
            Bar {
                href: href(*day),
                day: short_day(*day),
                events: number(*events),
                is_open: *day == today,
                hit_x: tenths(slot * at),
                hit_width: tenths(slot),
                x: tenths(slot * at + gap),
                y: tenths(HEIGHT * 10 - height),
                width: tenths(slot - 2 * gap),
                height: tenths(height),
            }
        });
        let total: u64 = days.iter().map(|(_, events)| events).sum();
        let summary = match highest {
            Some((day, events)) if total > 0 => {
                format!(
                    "{} events in {} days, most on {}: {}.",
                    number(total),
                    days.len(),
                    short_day(day),
                    number(events)
                )
            }
            _ => "No events in this period.".to_owned(),
        };
        let label = |at: usize| days.get(at).map(|(day, _)| short_day(*day));
        let last = days.len().saturating_sub(1);
        let mut places = vec![0, last / 4, last / 2, last * 3 / 4, last];
        places.dedup();
        Bars {
            title: title.to_owned(),
            summary,
            bars: bars.collect(),
            lines: (0..=STEPS)
                .map(|step| tenths((HEIGHT * 10 * step / STEPS).clamp(5, HEIGHT * 10 - 5)))
                .collect(),
            scale: (0..=STEPS).rev().map(|step| number(top / STEPS * step)).collect(),
            days: places.into_iter().filter_map(label).collect(),
        }
    }
}

/// The part of `of` that `value` is of `whole`.
fn scaled(value: u64, whole: u64, of: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(of) / u128::from(whole.max(1));
    u64::try_from(scaled).unwrap_or(of).min(of)
}

/// A line without a scale, for the shape of something. `chart_spark.html` draws it.
pub(crate) struct Spark {
    pub words: String,
    pub line: String,
    pub area: String,
}

impl Spark {
    pub(crate) fn new(words: String, values: &[u64]) -> Spark {
        let top = values.iter().copied().max().unwrap_or(0).max(1);
        let last = (values.len().max(2) - 1) as u64;
        let points: Vec<String> = (0..)
            .zip(values)
            .map(|(at, value)| {
                let y = 270 - scaled(*value, top, 250);
                format!("{} {}", tenths(1000 * at / last), tenths(y))
            })
            .collect();
        let line = if points.is_empty() { String::new() } else { format!("M{}", points.join("L")) };
        let area = if points.is_empty() { String::new() } else { format!("{line}L100 28L0 28z") };
        Spark { words, line, area }
    }
}

/// The most frequent values as bars behind their names. `chart_rank.html` draws it.
pub(crate) struct Rank {
    pub title: &'static str,
    pub rows: Vec<RankRow>,
    /// How many values and events are not among the rows, in words.
    pub rest: Option<String>,
    /// What to say without any.
    pub nothing: &'static str,
    pub is_code: bool,
    /// What else is to be known of the numbers.
    pub note: Option<&'static str>,
}

pub(crate) struct RankRow {
    pub label: String,
    pub count: String,
    /// Per cent of the first one's.
    pub width: String,
    /// Events with this value, where a filter can say so.
    pub href: Option<String>,
}

impl Rank {
    /// `values` from the most frequent on; `others` are events of values that were not counted apart.
    pub(crate) fn new(
        title: &'static str,
        values: &[(String, u64)],
        others: u64,
        rows_max: usize,
        href: impl Fn(&str) -> Option<String>,
    ) -> Rank {
        let first = values.first().map_or(1, |(_, count)| *count);
        let row = |(value, count): &(String, u64)| RankRow {
            label: crate::text::visible(value),
            count: number(*count),
            width: tenths(scaled(*count, first, 1000)),
            href: href(value),
        };
        let rest: u64 = values.iter().skip(rows_max).map(|(_, count)| count).sum::<u64>() + others;
        let more = values.len().saturating_sub(rows_max);
        let words = match (more, others) {
            (0, 0) => None,
            (0, _) => Some(format!("Others: {} events", number(rest))),
            (more, _) => Some(format!("{} more: {} events", number(more as u64), number(rest))),
        };
        Rank {
            title,
            rows: values.iter().take(rows_max).map(row).collect(),
            rest: words,
            nothing: "None in this period.",
            is_code: false,
            note: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_ends_at_a_number_that_people_read_and_no_bar_passes_it() {
        for (highest, top) in
            [(0, 3), (1, 3), (3, 3), (4, 6), (7, 15), (100, 150), (2040, 3000), (2400, 3000), (6001, 7500)]
        {
            assert_eq!(scale_max(highest), top, "{highest}");
        }
        assert_eq!(scale_max(u64::MAX), u64::MAX);
    }

    #[test]
    fn bars_stand_in_their_days_and_the_highest_is_named() {
        let bars = Bars::new("Events per day", &[(20_000, 30), (20_001, 0), (20_002, 15)], 20_002, |day| {
            Some(day.to_string())
        });
        let shapes: Vec<_> =
            bars.bars.iter().map(|bar| (bar.x.as_str(), bar.y.as_str(), bar.height.as_str())).collect();
        assert_eq!(shapes, [("30.0", "0.0", "176.0"), ("330.0", "176.0", "0.0"), ("630.0", "88.0", "88.0")]);
        assert_eq!(bars.scale, ["30", "20", "10", "0"]);
        assert!(
            bars.summary.starts_with("45 events in 3 days, most on Fri 4 Oct 2024: 30"),
            "{}",
            bars.summary
        );
        assert_eq!(bars.bars.iter().map(|bar| bar.is_open).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(Bars::new("x", &[], 0, |_| None).summary, "No events in this period.");
    }

    #[test]
    fn one_event_among_millions_is_seen() {
        let bars = Bars::new("x", &[(1, 5_000_000), (2, 1)], 9, |_| None);
        assert_eq!(bars.bars[1].height, "1.0");
    }

    #[test]
    fn what_a_ranking_leaves_out_is_said() {
        let values: Vec<_> =
            [("a", 10), ("b", 5), ("c", 2), ("d", 1)].map(|(name, count)| (name.to_owned(), count)).into();
        let rank = Rank::new("Actions", &values, 7, 2, |value| Some(value.to_owned()));
        assert_eq!(rank.rows.iter().map(|row| row.width.as_str()).collect::<Vec<_>>(), ["100.0", "50.0"]);
        assert_eq!(rank.rest.as_deref(), Some("2 more: 10 events"));
        assert_eq!(Rank::new("Actions", &values, 0, 4, |_| None).rest, None);
        assert_eq!(Spark::new(String::new(), &[0, 10]).line, "M0.0 27.0L100.0 2.0");
    }
}
