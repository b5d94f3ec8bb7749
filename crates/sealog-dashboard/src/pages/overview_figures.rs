//! The figures at the top of Overview, with what they were before, and the state of the chain.

use sealog_store::ChainHead;
use sealog_store::counts::STANDARD_ERROR_PERCENT;

use crate::charts::Spark;
use crate::figures::{Counting, Figures};
use crate::pages::overview_side::Runs;
use crate::strip::{self, State};
use crate::text::{clock_ms, moment, number, short_day, span};

pub(crate) struct Figure {
    pub label: &'static str,
    pub value: String,
    pub note: String,
}

pub(crate) enum Chain {
    Sealed { seq: String, hash: String, verified: String },
    Broken { at: String, href: String },
    Lost { seq: String, recorded: String },
}

/// What figures are compared with.
pub(crate) enum Before<'a> {
    /// It may not be seen.
    Hidden,
    /// The chain has not all of it.
    Partial,
    Whole(&'a Figures),
}

/// For what is counted whatever the action was.
pub(crate) fn with_reads_note(counting: Counting, figures: &Figures) -> Option<&'static str> {
    (counting == Counting::WithoutReads && figures.reads > 0).then_some("including reads")
}

pub(crate) fn summary(
    now: &Figures,
    before: &Before<'_>,
    counting: Counting,
    head: &ChainHead,
    now_ms: u64,
    sees_end: bool,
) -> Vec<Figure> {
    let was = |of: fn(&Figures) -> u64| match before {
        Before::Hidden => "no earlier period to compare".to_owned(),
        Before::Partial => String::new(),
        Before::Whole(then) => change(of(then), of(now)),
    };
    let estimate = [
        Some(format!("estimate, ±{STANDARD_ERROR_PERCENT} %")),
        with_reads_note(counting, now).map(str::to_owned),
        Some(was(|figures| figures.actors)).filter(|was| !was.is_empty()),
    ];
    let mut all = vec![
        Figure { label: "Events", value: number(now.events), note: was(|figures| figures.events) },
        Figure {
            label: "Actors",
            value: format!("about {}", number(now.actors)),
            note: estimate.into_iter().flatten().collect::<Vec<_>>().join("; "),
        },
        Figure {
            label: "Failed or denied",
            value: share(now.failed, now.events),
            note: format!("{} events with a failed or denied action", number(now.failed)),
        },
    ];
    if sees_end && head.durable.chain_seq > 0 {
        let last_ms = head.durable.log_id.timestamp_ms();
        all.push(Figure {
            label: "Last event",
            value: format!("{} ago", span(now_ms.saturating_sub(last_ms))),
            note: moment(last_ms).replace(&clock_ms(last_ms), &clock_ms(last_ms)[..8]),
        });
    }
    all
}

/// `was 1,000, +6.2 %`. Where it is many times as much, a percentage says nothing that people can picture.
fn change(before: u64, after: u64) -> String {
    if before == 0 || after / 3 >= before {
        return format!("from {}", number(before));
    }
    let tenths = u128::from(before.abs_diff(after)) * 1000 / u128::from(before);
    let sign = if after >= before { '+' } else { '−' };
    format!("was {}, {sign}{}.{} %", number(before), tenths / 10, tenths % 10)
}

/// `2.6 %`
fn share(part: u64, whole: u64) -> String {
    let tenths = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// `from_the_first` says that the person sees the beginning of the chain.
pub(crate) fn chain_state(head: &ChainHead, runs: &Runs, from_the_first: bool, now_ms: u64) -> Chain {
    let seq = number(head.durable.chain_seq);
    if head.durable != head.recorded {
        return Chain::Lost { seq, recorded: number(head.recorded.chain_seq) };
    }
    if let State::Broken(at) = strip::state(head.first_seq(), head.durable.chain_seq, &runs.all, now_ms) {
        let run = runs.all.iter().find(|run| run.progress.broken.as_ref().is_some_and(|it| it.at == at));
        let href = run.map_or(runs.href.clone(), |run| format!("{}/{}", runs.href, run.id));
        return Chain::Broken { at: number(at), href };
    }
    let verified = match strip::sound_from(head.first_seq(), &runs.all) {
        Some((to, at_ms)) if from_the_first => {
            format!("Verified to #{}, {} ago.", number(to), span(now_ms.saturating_sub(at_ms)))
        }
        _ if from_the_first => "Not verified yet.".to_owned(),
        _ => "No known loss.".to_owned(),
    };
    Chain::Sealed { seq, hash: head.durable.hash.to_string(), verified }
}

pub(crate) fn critical(figures: &Figures) -> Option<Spark> {
    let (at, most) = figures.critical.iter().enumerate().max_by_key(|(_, count)| **count)?;
    let is_worth = *most > 0 && figures.critical.len() > 2;
    let (on, _) = figures.days.get(at).filter(|_| is_worth)?;
    let words = format!("Critical events per day, at most {} on {}", number(*most), short_day(*on));
    Some(Spark::new(words, &figures.critical))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_many_times_as_much_is_said_without_a_percentage() {
        assert_eq!(
            (change(0, 5), change(3, 361), change(10, 30)),
            ("from 0".into(), "from 3".into(), "from 10".into())
        );
        assert_eq!(change(u64::MAX, u64::MAX), format!("was {}, +0.0 %", number(u64::MAX)));
    }

    #[test]
    fn changes_and_shares_have_one_decimal_place() {
        assert_eq!(change(1000, 1062), "was 1,000, +6.2 %");
        assert_eq!(change(1000, 900), "was 1,000, −10.0 %");
        assert_eq!((change(10, 29), change(3, 0)), ("was 10, +190.0 %".into(), "was 3, −100.0 %".into()));
        assert_eq!((share(0, 0), share(26, 1000)), ("0.0 %".into(), "2.6 %".into()));
    }
}
