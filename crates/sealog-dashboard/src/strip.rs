//! The strip of a chain: windows of events, and what is known of each from the verifications that have ended.

use sealog_service::evidence::verification::{Run, RunEnd};

/// Windows that are shown; a longer chain has larger ones.
const CELLS_MAX: u64 = 60;
const WINDOW: u64 = 1000;
/// A verification that is older says what was, not what is.
const STALE_MS: u64 = 7 * 24 * 60 * 60 * 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// At this time.
    Verified(u64),
    Stale(u64),
    /// Nobody has looked at all of it.
    Unknown,
    /// At this event.
    Broken(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub from: u64,
    pub to: u64,
    pub state: State,
}

/// `runs` are newest first.
pub(crate) fn cells(first: u64, last: u64, runs: &[Run], now_ms: u64) -> Vec<Cell> {
    let mut size = WINDOW;
    while (last.saturating_sub(first) + 1).div_ceil(size) >= CELLS_MAX {
        size *= 10;
    }
    let mut cells = Vec::new();
    // Windows begin at the same places however long the chain becomes.
    let mut from = first;
    while from <= last && from > 0 {
        let to = (((from - 1) / size + 1) * size).min(last);
        cells.push(Cell { from, to, state: state(from, to, runs, now_ms) });
        from = to + 1;
    }
    cells
}

pub(crate) fn state(from: u64, to: u64, runs: &[Run], now_ms: u64) -> State {
    // What is sound by a newer verification, in no order.
    let mut sound: Vec<(u64, u64)> = Vec::new();
    let mut oldest_ms = now_ms;
    for run in runs {
        let Some(ended_at_ms) = run.ended_at_ms else { continue };
        if let Some(RunEnd::Broken(broken)) = &run.end
            // A missing event is found at the next one that exists, which may be in another window.
            && broken.begins_at().max(run.from) <= to
            && from <= broken.at
        {
            let at = broken.at.min(to);
            if !sound.iter().any(|(low, high)| (*low..=*high).contains(&at)) {
                return State::Broken(at);
            }
        }
        let Some(sound_to) = run.sound_to() else { continue };
        if run.from > to || sound_to < from {
            continue;
        }
        sound.push((run.from, sound_to));
        oldest_ms = oldest_ms.min(ended_at_ms);
        if covers(&sound, from, to) {
            let is_stale = now_ms.saturating_sub(oldest_ms) > STALE_MS;
            return if is_stale { State::Stale(oldest_ms) } else { State::Verified(oldest_ms) };
        }
    }
    State::Unknown
}

/// Places that were found broken, and that no newer verification has found sound.
pub(crate) fn broken(runs: &[Run]) -> usize {
    let (mut sound, mut places): (Vec<(u64, u64)>, Vec<u64>) = (Vec::new(), Vec::new());
    for run in runs {
        if let Some(RunEnd::Broken(broken)) = &run.end
            && !places.contains(&broken.at)
            && !sound.iter().any(|(low, high)| (*low..=*high).contains(&broken.at))
        {
            places.push(broken.at);
        }
        sound.extend(run.sound_to().map(|to| (run.from, to)));
    }
    places.len()
}

/// How far the chain is known to be sound from its first event on, which is this one, and when the oldest
/// part of that was found.
pub(crate) fn sound_from(first: u64, runs: &[Run]) -> Option<(u64, u64)> {
    let mut found: Option<(u64, u64)> = None;
    loop {
        let next = found.map_or(first, |(to, _)| to.saturating_add(1));
        let reach = runs.iter().filter_map(|run| Some((run.sound_to()?, run.ended_at_ms?, run.from)));
        let reach = reach.filter(|(to, _, from)| *from <= next && *to >= next);
        // Of those that reach as far the newest, which comes first.
        let Some((to, at_ms, _)) = reach.rev().max_by_key(|(to, ..)| *to) else { return found };
        found = Some((to, found.map_or(at_ms, |(_, oldest_ms)| oldest_ms.min(at_ms))));
    }
}

fn covers(ranges: &[(u64, u64)], from: u64, to: u64) -> bool {
    let mut ranges = ranges.to_vec();
    ranges.sort_unstable();
    let mut next = from;
    for (low, high) in ranges {
        if low > next {
            return false;
        }
        next = next.max(high.saturating_add(1));
    }
    next > to
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Ulid, Uuid};
    use sealog_service::evidence::verification::{Found, Neighbour, Progress};

    const NOW: u64 = 100 * STALE_MS;

    fn run(from: u64, to: u64, broken_at: Option<u64>, ended_at_ms: u64) -> Run {
        let broken = broken_at.map(|at| {
            Box::new(Found {
                at,
                hash: Some(Hash::ZERO),
                reason: "hash".into(),
                before: None,
                failing: None,
                expected: None,
                found: None,
                before_is_withheld: false,
                failing_is_withheld: false,
            })
        });
        let chain = ChainId {
            tenant_id: TenantId(Uuid([1; 16])),
            project_id: ProjectId(Uuid([2; 16])),
            mode: Mode::Live,
        };
        let progress = Progress {
            next: broken_at.unwrap_or(to + 1),
            checked: 0,
            begun_at_ms: None,
            first: None,
            last: None,
            broken: broken.clone(),
        };
        Run {
            id: Uuid([3; 16]),
            chain,
            from,
            to,
            person_id: None,
            created_at_ms: 0,
            progress,
            end: Some(broken.map_or(RunEnd::Valid, RunEnd::Broken)),
            ended_at_ms: Some(ended_at_ms),
            is_begun: true,
        }
    }

    fn states(last: u64, runs: &[Run]) -> Vec<State> {
        cells(1, last, runs, NOW).iter().map(|cell| cell.state).collect()
    }

    #[test]
    fn windows_have_1000_events_and_become_larger_with_the_chain() {
        assert_eq!(cells(1, 0, &[], NOW), []);
        let bounds =
            |last| cells(1, last, &[], NOW).iter().map(|cell| (cell.from, cell.to)).collect::<Vec<_>>();
        assert_eq!(bounds(1), [(1, 1)]);
        assert_eq!(bounds(1001), [(1, 1000), (1001, 1001)]);
        assert_eq!(bounds(59_000).len(), 59);
        assert_eq!(bounds(59_001)[0], (1, 10_000));
        for last in [1, 999, 59_000, 59_001, 20_000_000, u64::MAX / 2] {
            assert!(bounds(last).len() <= 60, "{last}");
        }
        // A part of a chain, as an auditor sees it.
        let part = cells(1500, 2500, &[], NOW);
        assert_eq!((part[0].from, part[0].to, part[1].from, part[1].to), (1500, 2000, 2001, 2500));
    }

    #[test]
    fn a_window_is_verified_when_all_of_it_was_and_stale_after_a_week() {
        assert_eq!(states(2000, &[run(1, 1999, None, NOW)]), [State::Verified(NOW), State::Unknown]);
        let two = [run(1001, 2000, None, NOW), run(1, 1500, None, NOW - 5)];
        assert_eq!(states(2000, &two), [State::Verified(NOW - 5), State::Verified(NOW)]);
        // Of two that together cover it the older one counts.
        let two = [run(1, 500, None, NOW), run(400, 1000, None, NOW - 5)];
        assert_eq!(states(1000, &two), [State::Verified(NOW - 5)]);
        assert_eq!(states(9, &[run(1, 9, None, NOW - STALE_MS)]), [State::Verified(NOW - STALE_MS)]);
        assert_eq!(states(9, &[run(1, 9, None, NOW - STALE_MS - 1)]), [State::Stale(NOW - STALE_MS - 1)]);
    }

    #[test]
    fn a_missing_event_breaks_its_window_also_where_it_is_found_behind_it() {
        // #1,000 and #1,001 are missing; the next one that exists is in another window.
        let mut broken = run(1, 1000, Some(1002), NOW);
        let before = Neighbour {
            chain_seq: 999,
            log_id: Ulid(1),
            timestamp_ms: 1,
            prev_hash: Hash::ZERO,
            hash: Hash::ZERO,
            recomputed: Hash::ZERO,
        };
        let found =
            Found { reason: "gap".into(), before: Some(before), ..*broken.progress.broken.take().unwrap() };
        broken.progress.broken = Some(Box::new(found.clone()));
        broken.end = Some(RunEnd::Broken(Box::new(found)));
        assert_eq!(broken.sound_to(), Some(999));
        let seen = [State::Broken(1000), State::Broken(1002), State::Unknown];
        assert_eq!(states(3000, &[broken]), seen);
    }

    #[test]
    fn a_chain_is_known_to_be_sound_as_far_as_verifications_join() {
        assert_eq!(sound_from(1, &[]), None);
        assert_eq!(sound_from(1, &[run(2, 9, None, NOW)]), None, "of the first nothing is known");
        assert_eq!(sound_from(2, &[run(2, 9, None, NOW)]), Some((9, NOW)), "what was before it was dropped");
        let joined = [run(900, 2000, None, NOW), run(1, 1000, None, NOW - 5), run(1, 1000, None, NOW - 9)];
        assert_eq!(sound_from(1, &joined), Some((2000, NOW - 5)));
        let apart = [run(1002, 2000, None, NOW), run(1, 1000, None, NOW - 5)];
        assert_eq!(sound_from(1, &apart), Some((1000, NOW - 5)));
        assert_eq!(sound_from(1, &[run(1, 2000, Some(1500), NOW)]), Some((1499, NOW)));
    }

    #[test]
    fn a_broken_place_counts_once_until_a_newer_verification_finds_it_sound() {
        let broken = run(1, 3000, Some(1500), NOW - 5);
        let twice =
            [broken.clone(), run(1, 3000, Some(1500), NOW - 9), run(2000, 3000, Some(2500), NOW - 10)];
        assert_eq!((super::broken(&[]), super::broken(&twice)), (0, 2));
        assert_eq!(super::broken(&[run(1, 3000, None, NOW), broken.clone()]), 0);
        assert_eq!(super::broken(&[run(1, 1000, None, NOW), broken]), 1);
    }

    #[test]
    fn a_break_shows_until_a_newer_verification_finds_it_sound() {
        let broken = run(1, 3000, Some(1500), NOW - 5);
        let seen = [State::Verified(NOW - 5), State::Broken(1500), State::Unknown];
        assert_eq!(states(3000, std::slice::from_ref(&broken)), seen);
        let elsewhere = [run(1, 1000, None, NOW), broken.clone()];
        assert_eq!(states(3000, &elsewhere)[1], State::Broken(1500));
        let sound = [run(1001, 2000, None, NOW), broken];
        assert_eq!(states(3000, &sound)[1], State::Verified(NOW));
    }
}
