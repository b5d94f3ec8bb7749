//! When chains are verified without anybody asking, and which part of a chain in which night.
//!
//! A night begins at a time of day (UTC) and has a number: that of the day on which it begins. Every chain
//! that had its first event before gets one verification in it, whose id follows from chain and night: of any
//! number of servers, one queues it.

use sealog_core::id::{ChainId, Uuid};
use sealog_core::query::SeqRange;
use sealog_core::time::DAY_MS;
use sha2::{Digest, Sha256};

use super::run::{Run, RunEnd};

/// Chains of so many events are verified whole, every night.
pub const WHOLE_MAX: u64 = 1_000_000;
/// Of a longer one a night takes this part of it, at least [`WHOLE_MAX`]: five nights and the rest of the
/// last round are six, and a chain may grow meanwhile.
const NIGHTS: u64 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The time of day at which a night begins.
    pub at_ms: u64,
    /// The day of the week on which the integrity report is made; Monday is 0.
    pub report_on: Option<u64>,
}

const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

impl Schedule {
    /// `HH:MM`.
    pub fn parse_time(text: &str) -> Option<u64> {
        let (hours, minutes) = text.split_once(':')?;
        let number = |digits: &str, below: u64| {
            let plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<u64>().ok().filter(|number| plain && *number < below)
        };
        Some((number(hours, 24)? * 60 + number(minutes, 60)?) * 60_000)
    }

    /// In English, in small letters.
    pub fn parse_day(text: &str) -> Option<u64> {
        DAYS.iter().position(|day| *day == text).map(|day| day as u64)
    }

    /// For people: `02:30`.
    pub fn time(&self) -> String {
        let minutes = self.at_ms / 60_000;
        format!("{:02}:{:02}", minutes / 60, minutes % 60)
    }

    /// The night that this time belongs to.
    pub(super) fn night(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.at_ms) / DAY_MS
    }

    pub(super) fn begins_ms(&self, night: u64) -> u64 {
        night * DAY_MS + self.at_ms
    }

    /// The last night on which reports were due.
    pub(super) fn report_night(&self, now_ms: u64) -> Option<u64> {
        let (night, day) = (self.night(now_ms), self.report_on?);
        // The first day of all was a Thursday.
        let since = (night + 3 + 7 - day) % 7;
        night.checked_sub(since)
    }
}

/// Of the verification of a chain in a night.
pub(super) fn job_id(chain: ChainId, night: u64) -> Uuid {
    let text =
        format!("sealog scheduled verification\0{}\0{}\0{night}", chain.project_id, chain.mode.as_str());
    let mut hash = Sha256::new_with_prefix(text);
    hash.update(chain.tenant_id.0.0);
    let digest = hash.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Uuid::from_random(bytes)
}

/// What to verify of a chain that ends at `end`, after this verification. One that found a break, or could
/// not be done, is done again: what is wrong stays in sight.
pub(super) fn range(end: u64, before: Option<&Run>) -> SeqRange {
    if end <= WHOLE_MAX {
        return SeqRange { from: 1, to: end };
    }
    let from = match before {
        Some(run) if !matches!(run.end, Some(RunEnd::Valid)) && run.from <= end => run.from,
        // A part that is shorter than it might be ended where the chain did. What has come since waits for
        // the next round: whoever followed a chain that grows would never come back to its beginning.
        Some(run) if run.to < end && run.to - run.from + 1 >= part(run.to) => run.to + 1,
        _ => 1,
    };
    SeqRange { from, to: end.min(from.saturating_add(part(end) - 1)) }
}

/// How many events of a chain that ends there are verified in one night.
fn part(end: u64) -> u64 {
    end.div_ceil(NIGHTS).max(WHOLE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::verification::Progress;
    use sealog_core::id::{Mode, ProjectId, TenantId};

    fn chain() -> ChainId {
        ChainId { tenant_id: TenantId(Uuid([1; 16])), project_id: ProjectId(Uuid([2; 16])), mode: Mode::Live }
    }

    fn run(SeqRange { from, to }: SeqRange, end: RunEnd) -> Run {
        Run {
            id: Uuid([3; 16]),
            chain: chain(),
            from,
            to,
            person_id: None,
            created_at_ms: 0,
            progress: Progress::parse(from, b""),
            end: Some(end),
            ended_at_ms: Some(0),
            is_begun: true,
        }
    }

    #[test]
    fn a_night_begins_at_its_time_and_a_report_on_its_day() {
        let at_ms = Schedule::parse_time("02:30").unwrap();
        let schedule = Schedule { at_ms, report_on: Schedule::parse_day("monday") };
        assert_eq!(schedule.time(), "02:30");
        // Monday, 2026-11-16.
        let monday = 20_773;
        assert_eq!(sealog_core::time::iso_ms(monday * DAY_MS), "2026-11-16T00:00:00.000Z");
        assert_eq!(schedule.night(monday * DAY_MS + at_ms - 1), monday - 1);
        assert_eq!(schedule.night(monday * DAY_MS + at_ms), monday);
        assert_eq!(schedule.report_night(schedule.begins_ms(monday)), Some(monday));
        assert_eq!(schedule.report_night(schedule.begins_ms(monday) - 1), Some(monday - 7));
        assert_eq!(schedule.report_night(schedule.begins_ms(monday + 6)), Some(monday));
        let sunday = Schedule { report_on: Schedule::parse_day("sunday"), ..schedule };
        assert_eq!(sunday.report_night(schedule.begins_ms(monday)), Some(monday - 1));
        assert_eq!(Schedule { report_on: None, ..schedule }.report_night(0), None);
        for wrong in ["", "2:30", "02.30", "24:00", "02:60", "+2:30", "off"] {
            assert_eq!(Schedule::parse_time(wrong), None, "{wrong}");
        }
        assert_eq!(Schedule::parse_day("Monday"), None);
    }

    #[test]
    fn a_chain_of_a_million_events_is_verified_whole_every_night() {
        for end in [1, 999, WHOLE_MAX] {
            let whole = SeqRange { from: 1, to: end };
            assert_eq!(range(end, None), whole);
            assert_eq!(range(end, Some(&run(whole, RunEnd::Valid))), whole);
        }
    }

    #[test]
    fn every_event_of_a_longer_chain_is_verified_within_a_week_also_while_it_grows() {
        for (mut end, growth) in
            [(1_000_001, 0), (1_000_001, 400_000), (20_000_000, 0), (20_000_000, 600_000)]
        {
            // Boundaries of what was verified, with the night in which it was.
            let mut last: Vec<(SeqRange, u64)> = Vec::new();
            let mut before = None;
            for night in 0..60 {
                let next = range(end, before.as_ref());
                assert!(next.from <= next.to && next.to <= end);
                assert!(next.to - next.from < end.div_ceil(5).max(WHOLE_MAX), "bounded");
                last.push((next, night));
                before = Some(run(next, RunEnd::Valid));
                // Every boundary, and one event on each side of it.
                let places: Vec<u64> = last.iter().flat_map(|(range, _)| [range.from, range.to]).collect();
                for seq in places.into_iter().chain([1, end / 2]) {
                    let nights = last.iter().filter(|(range, _)| (range.from..=range.to).contains(&seq));
                    let newest = nights.map(|(_, night)| *night).max();
                    if night >= 7 && seq <= end - 7 * growth {
                        assert!(newest.is_some_and(|newest| night - newest < 7), "#{seq} of {end}");
                    }
                }
                end += growth;
            }
        }
    }

    #[test]
    fn a_part_that_is_broken_or_could_not_be_read_is_verified_again() {
        let part = SeqRange { from: 2_000_001, to: 3_000_000 };
        let failed = run(part, RunEnd::Failed("x".into()));
        assert_eq!(range(5_000_000, Some(&failed)), part);
        assert_eq!(range(5_000_000, Some(&run(part, RunEnd::Valid))).from, 3_000_001);
        assert_eq!(range(3_000_000, Some(&run(part, RunEnd::Valid))).from, 1, "the round is over");
        assert_eq!(range(1_500_000, Some(&failed)).from, 1, "a chain that has accepted a loss");
    }

    #[test]
    fn the_id_of_a_verification_follows_from_chain_and_night() {
        let id = job_id(chain(), 7);
        assert_eq!(id, job_id(chain(), 7));
        let test = ChainId { mode: Mode::Test, ..chain() };
        let other = ChainId { tenant_id: TenantId(Uuid([9; 16])), ..chain() };
        assert!(![job_id(chain(), 8), job_id(test, 7), job_id(other, 7)].contains(&id));
    }
}
