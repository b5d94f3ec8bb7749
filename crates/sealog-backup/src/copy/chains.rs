//! The events of chains, each verified against the one before it before it is written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use indicatif::ProgressBar;
use sealog_cli::progress;
use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::ChainId;
use sealog_core::verify::Item;
use sealog_store::world::{SystemWorld, World};
use sealog_store::{ChainHead, IDEMPOTENCY_RETENTION_MS, Range, Store, StoreError};

use super::keys::Keys;
use super::trouble::{Kind, Trouble};

/// What is read at a time, and written while the next is read.
const PIECE_BYTES: usize = 4 << 20;
/// How far the clocks of two stores may be apart: a key that one of them still counts is copied, one that
/// both count must have arrived.
const CLOCKS_APART_MS: u64 = 60_000;

/// For errors of one chain.
pub(super) fn of_chain(chain: ChainId) -> impl Fn(Trouble) -> Trouble {
    move |trouble| trouble.prefixed(format_args!("chain {chain}"))
}

/// Every chain of the target must be the beginning of the source's. Whether the source has events that the
/// target does not have.
pub(super) async fn check_events(from: &dyn Store, to: &dyn Store) -> Result<bool, Trouble> {
    let (source, target) =
        (from.heads().await.map_err(Trouble::source)?, to.heads().await.map_err(Trouble::target)?);
    let known: BTreeMap<ChainId, Head> = source.iter().copied().collect();
    let mut goes_on = false;
    let begun: BTreeSet<ChainId> = target.iter().map(|(chain, _)| *chain).collect();
    for (chain, _) in source.iter().filter(|(chain, _)| !begun.contains(chain)) {
        let there = from.head(*chain).await.map_err(Trouble::source)?;
        goes_on |= dropped_before(&there, to, *chain).await?.is_none();
    }
    for (chain, begun) in &target {
        let head = known.get(chain).copied().unwrap_or(Head::EMPTY);
        if head == Head::EMPTY {
            return Err(Trouble::wrong_way(&format!(
                "the target has a chain that the source does not have ({chain})"
            )));
        }
        if begun.chain_seq > head.chain_seq {
            return Err(Trouble::wrong_way(&format!(
                "chain {chain} has {} events in the target but only {} in the source",
                begun.chain_seq, head.chain_seq
            )));
        }
        let there = from.head(*chain).await.map_err(Trouble::source)?;
        if dropped_before(&there, to, *chain).await?.is_some() {
            continue;
        }
        let same = event_at(from, *chain, begun.chain_seq).await;
        if same.map_err(of_chain(*chain))?.head() != *begun {
            return Err(Trouble::wrong_way(&format!(
                "chain {chain}: event {} of the target differs from the source",
                begun.chain_seq
            )));
        }
        if to.head(*chain).await.map_err(Trouble::target)?.recorded != *begun {
            return Err(Trouble::broken(format!(
                "chain {chain}: the target has lost its events from {} on",
                begun.chain_seq + 1
            )));
        }
        goes_on |= begun.chain_seq < head.chain_seq;
    }
    for (chain, _) in &source {
        let there = from.head(*chain).await.map_err(Trouble::source)?;
        is_whole(&there).map_err(of_chain(*chain))?;
    }
    Ok(goes_on)
}

/// The source has what the chain is known to have had: a copy has no record of what was lost or replaced, and
/// would be as good as new.
pub(super) fn is_whole(there: &ChainHead) -> Result<(), Trouble> {
    let ChainHead { durable, recorded, .. } = there;
    if recorded.chain_seq > durable.chain_seq {
        let first = durable.chain_seq + 1;
        return Err(Trouble::broken(format!("the source has lost its events from {first} on")));
    }
    if recorded != durable {
        return Err(Trouble::broken(format!(
            "event {} of the source differs from the recorded one; accept the loss first (sealog accept-loss)",
            recorded.chain_seq
        )));
    }
    Ok(())
}

pub(super) struct Copied {
    pub events: u64,
    pub chains: usize,
}

pub(super) async fn copy_events(from: &dyn Store, to: &dyn Store, is_quiet: bool) -> Result<Copied, Trouble> {
    let mut source = Vec::new();
    for (chain, head) in from.heads().await.map_err(Trouble::source)? {
        let there = from.head(chain).await.map_err(Trouble::source)?;
        match dropped_before(&there, to, chain).await? {
            None => source.push((chain, head)),
            Some(dropped) => eprintln!("{}", left_out_because(chain, dropped)),
        }
    }
    let all = source.iter().map(|(_, head)| head.chain_seq).sum();
    let bar = progress::bar(is_quiet, "Copying", Some(all));
    let mut events = 0;
    for (number, (chain, head)) in (1..).zip(&source) {
        let copied = copy_chain(from, to, *chain, *head, Window::Counting, &bar).await;
        let copied = copied.map_err(of_chain(*chain))?;
        events += copied;
        if !is_quiet {
            let (chains, all) = (source.len(), head.chain_seq);
            let told = format!("chain {number} of {chains}: {all} events, {copied} of them copied now");
            bar.suspend(|| eprintln!("{told}"));
        }
    }
    bar.finish_and_clear();
    for (chain, head) in &source {
        ends_with(to, *chain, *head).await.map_err(of_chain(*chain))?;
        compare_keys(from, to, *chain, head.chain_seq).await.map_err(of_chain(*chain))?;
    }
    Ok(Copied { events, chains: source.len() })
}

/// At the end of a copy.
pub(super) async fn ends_with(to: &dyn Store, chain: ChainId, head: Head) -> Result<(), Trouble> {
    let there = to.head(chain).await.map_err(Trouble::target)?.durable;
    if there == head {
        return Ok(());
    }
    let (ends, should) = (there.chain_seq, head.chain_seq);
    Err(Trouble::broken(format!("it ends at {ends} in the target but at {should} in the source")))
}

/// The last event that was dropped of a chain, if the target would need it to go on.
pub(super) async fn dropped_before(
    there: &ChainHead,
    to: &dyn Store,
    chain: ChainId,
) -> Result<Option<u64>, Trouble> {
    let begun = to.head(chain).await.map_err(Trouble::target)?.durable.chain_seq;
    Ok(Some(there.dropped.chain_seq).filter(|dropped| *dropped > begun))
}

/// What is said of a chain that is not copied: its first event cannot be proven to a store that has never had
/// those before it.
pub(super) fn left_out_because(chain: ChainId, dropped: u64) -> String {
    format!("chain {chain}: not copied, because its test events up to {dropped} were deleted for their age")
}

/// Every key of the source that still counts must be in the target, with the same answer. Those of events
/// behind `through` may have come since.
pub(super) async fn compare_keys(
    from: &dyn Store,
    to: &dyn Store,
    chain: ChainId,
    through: u64,
) -> Result<(), Trouble> {
    let after_ms = counting_after_ms() + CLOCKS_APART_MS;
    let mut source = Keys::of_source(from, chain, 1, after_ms);
    let mut target = Keys::of_target(to, chain, after_ms);
    while let Some(key) = source.next().await?.filter(|key| key.first_seq <= through) {
        if target.next().await? != Some(key) {
            let missing = format!("the idempotency key of event {} is not in the target", key.first_seq);
            return Err(Trouble::new(Kind::Target, missing));
        }
    }
    Ok(())
}

/// Keys that were received before have expired by this clock.
fn counting_after_ms() -> u64 {
    SystemWorld.now_ms().saturating_sub(IDEMPOTENCY_RETENTION_MS)
}

/// Which idempotency keys are looked at for the events that are copied.
#[derive(Clone, Copy, Debug)]
pub(super) enum Window {
    /// All that still count.
    Counting,
    /// Those that are as old as the first of the events, or younger. A key has the time of its event, unless
    /// the source's clock was set back in between, which may be by less than [`CLOCKS_APART_MS`]; a database
    /// finds them without looking at a whole day.
    SinceEvents,
}

/// Copies what the target does not have. How much that was.
pub(super) async fn copy_chain(
    from: &dyn Store,
    to: &dyn Store,
    chain: ChainId,
    head: Head,
    window: Window,
    bar: &ProgressBar,
) -> Result<u64, Trouble> {
    let begun = to.head(chain).await.map_err(Trouble::target)?.durable;
    bar.inc(begun.chain_seq.min(head.chain_seq));
    let mut next = begun.chain_seq + 1;
    let counting_ms = counting_after_ms().saturating_sub(CLOCKS_APART_MS);
    let mut keys = None;
    let mut events = VecDeque::new();
    let mut written = Vec::new();
    while next <= head.chain_seq {
        let range = Range { from: next, to: head.chain_seq, bytes_max: PIECE_BYTES };
        let piece = from.range(chain, range).await.map_err(Trouble::source)?;
        let (held, first) = (events.len(), next);
        for item in piece.items {
            match item {
                Item::Event(event) if event.sealed.chain_seq == next => events.push_back(*event),
                Item::Event(_) => {
                    return Err(Trouble::broken(format!("event {next} is missing in the source")));
                }
                Item::Damaged { chain_seq } => {
                    return Err(Trouble::broken(format!("event {chain_seq} is damaged in the source")));
                }
            }
            next += 1;
        }
        if events.len() == held {
            return Err(Trouble::broken(format!("event {next} is missing in the source")));
        }
        bar.inc(next - first);
        let keys = keys.get_or_insert_with(|| {
            let after_ms = match (window, events.front()) {
                (Window::SinceEvents, Some(first)) => {
                    counting_ms.max(first.sealed.log_id.timestamp_ms().saturating_sub(CLOCKS_APART_MS))
                }
                _ => counting_ms,
            };
            Keys::of_source(from, chain, begun.chain_seq + 1, after_ms)
        });
        // What was handed over before is written while this piece was read.
        finish(&mut written).await?;
        while let Some((request, key)) = keys.cut(&mut events).await? {
            written.push(to.import(chain, request, key));
        }
    }
    finish(&mut written).await?;
    if let Some(event) = events.front() {
        let first = event.sealed.chain_seq;
        return Err(Trouble::broken(format!("the request of event {first} ends after the end of the chain")));
    }
    Ok(head.chain_seq - begun.chain_seq)
}

/// Waits for pieces in their order. The target has verified each event against the one before it.
async fn finish(
    written: &mut Vec<sealog_store::BoxFuture<'_, Result<Head, StoreError>>>,
) -> Result<(), Trouble> {
    for piece in written.drain(..) {
        piece.await.map_err(|error| match error {
            // An event that does not follow the one before it.
            StoreError::Refused(_) => Trouble::broken(error.to_string()),
            error => Trouble::target(error),
        })?;
    }
    Ok(())
}

async fn event_at(store: &dyn Store, chain: ChainId, seq: u64) -> Result<StoredEvent, Trouble> {
    let range = Range { from: seq, to: seq, bytes_max: 1 };
    match store.range(chain, range).await.map_err(Trouble::source)?.items.pop() {
        Some(Item::Event(event)) => Ok(*event),
        Some(Item::Damaged { .. }) => Err(Trouble::broken(format!("event {seq} is damaged in the source"))),
        None => Err(Trouble::broken(format!("event {seq} is missing in the source"))),
    }
}
