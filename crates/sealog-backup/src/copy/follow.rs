//! A copy of a database that is kept up, for `sealog replicate`: a look brings what has come since the one
//! before.
//!
//! ```text
//! t0  the end of the signed log is read, then the heads of all chains
//! t1  the events of each chain that has grown are copied, with their idempotency keys, and synced
//! t2  the accounts are copied, now and then and whenever there is a new chain
//! t3  the signed log is copied up to what was read at t0, in which no event is that came later
//! ```
//! A kill in between leaves a store that has the beginning of each chain; the next run goes on from there.
//! Accounts come last, so that no event is there whose project is not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use sealog_control::ControlSnapshot;
use sealog_core::chain::Head;
use sealog_core::id::ChainId;
use sealog_engine::{Opened, Place, Unopened};
use sealog_service::Secret;
use sealog_store::Store;
use tokio::task::JoinSet;

use super::accounts::check_accounts;
use super::chains::{
    Window, check_events, compare_keys, copy_chain, dropped_before, ends_with, is_whole, left_out_because,
    of_chain,
};
use super::trouble::{Kind, Trouble};
use crate::signed_log::Following;

/// Chains that are copied at a time: many small ones wait for the disk together.
const AT_ONCE: usize = 16;
/// Accounts are read whole, so not at each look.
const ACCOUNTS_EVERY: Duration = Duration::from_secs(10);
/// And rest this many times as long as they took.
const ACCOUNTS_REST: u32 = 20;

#[derive(Debug)]
pub(crate) struct Follower {
    from: Opened,
    to: Opened,
    log: Following,
    runtime: tokio::runtime::Runtime,
    /// What the copy has.
    known: BTreeMap<ChainId, Head>,
    /// Test chains whose beginning was dropped before it could be copied.
    left_out: BTreeSet<ChainId>,
    accounts: ControlSnapshot,
    accounts_due: Instant,
}

impl Follower {
    /// Nothing of the copy is changed before it has turned out to be the beginning of the source.
    pub(crate) fn open(url: &str, dir: &Path) -> Result<Follower, Unbegun> {
        let from = Opened::open_unmarked(&Place::Postgres(Secret(url.to_owned())), dir)?;
        let to = Opened::open_unmarked(&Place::Embedded, dir)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Trouble::new(Kind::Target, error.to_string()))?;
        let (known, accounts) = runtime.block_on(begin(&from, &to))?;
        let (left_out, accounts_due) = (BTreeSet::new(), Instant::now());
        let log = Following::open(&from, &to)?;
        Ok(Follower { from, to, log, runtime, known, left_out, accounts, accounts_due })
    }

    /// Brings the copy up to what is durable now. How many events have come.
    pub(crate) fn look(&mut self, bar: &ProgressBar) -> Result<u64, Trouble> {
        let Follower { from, to, log, runtime, known, left_out, accounts, accounts_due } = self;
        let outline = log.look()?;
        let events = runtime.block_on(async {
            let before = (known.len(), events_of(known));
            copy_grown(&from.store(), &to.store(), known, left_out, bar).await?;
            if known.len() > before.0 || *accounts_due <= Instant::now() {
                let begun = Instant::now();
                copy_accounts(from, to, accounts).await?;
                *accounts_due = Instant::now() + ACCOUNTS_EVERY.max(begun.elapsed() * ACCOUNTS_REST);
            }
            Ok::<_, Trouble>(events_of(known) - before.1)
        })?;
        outline.map_or(Ok(()), |outline| log.follow(outline))?;
        Ok(events)
    }

    pub(crate) fn events(&self) -> u64 {
        events_of(&self.known)
    }

    pub(crate) fn chains(&self) -> usize {
        self.known.len()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.from.close();
        self.to.close();
    }
}

/// Why a copy did not begin.
#[derive(Debug)]
pub(crate) enum Unbegun {
    Unopened(Unopened),
    Trouble(Trouble),
}

impl From<Unopened> for Unbegun {
    fn from(unopened: Unopened) -> Unbegun {
        Unbegun::Unopened(unopened)
    }
}

impl From<Trouble> for Unbegun {
    fn from(trouble: Trouble) -> Unbegun {
        Unbegun::Trouble(trouble)
    }
}

fn events_of(heads: &BTreeMap<ChainId, Head>) -> u64 {
    heads.values().map(|head| head.chain_seq).sum()
}

/// What the copy has, once it is known to be the beginning of the source.
async fn begin(from: &Opened, to: &Opened) -> Result<(BTreeMap<ChainId, Head>, ControlSnapshot), Trouble> {
    let (source, target) = (from.store(), to.store());
    check_events(&*source, &*target).await?;
    let known: BTreeMap<_, _> = target.heads().await.map_err(Trouble::target)?.into_iter().collect();
    let accounts = to.control().export().await.map_err(Trouble::target)?;
    // Whatever is done to accounts is an event of a system chain: a store that has gone on by itself has
    // events that the source does not have.
    if known.is_empty() {
        let theirs = from.control().export().await.map_err(Trouble::source)?;
        check_accounts(&theirs, &accounts, true)?;
    }
    for (chain, head) in &known {
        compare_keys(&*source, &*target, *chain, head.chain_seq).await.map_err(of_chain(*chain))?;
    }
    Ok((known, accounts))
}

/// Copies what has come, several chains at a time.
async fn copy_grown(
    from: &Arc<dyn Store>,
    to: &Arc<dyn Store>,
    known: &mut BTreeMap<ChainId, Head>,
    left_out: &mut BTreeSet<ChainId>,
    bar: &ProgressBar,
) -> Result<(), Trouble> {
    let heads: BTreeMap<_, _> = from.heads().await.map_err(Trouble::source)?.into_iter().collect();
    not_behind(known, &heads)?;
    let has_grown = |(chain, head): &(&ChainId, &Head)| {
        !left_out.contains(chain) && known.get(chain).is_none_or(|had| had != *head)
    };
    let mut grown: Vec<_> = heads.iter().filter(has_grown).map(|(chain, head)| (*chain, *head)).collect();
    bar.set_length(grown.iter().map(|(_, head)| head.chain_seq).sum());
    let mut under_way = JoinSet::new();
    loop {
        while under_way.len() < AT_ONCE
            && let Some((chain, head)) = grown.pop()
        {
            let (from, to, bar) = (Arc::clone(from), Arc::clone(to), bar.clone());
            under_way.spawn(async move {
                let copied = copy_one(&*from, &*to, chain, head, &bar).await;
                (chain, head, copied.map_err(of_chain(chain)))
            });
        }
        let Some(ended) = under_way.join_next().await else { return Ok(()) };
        let (chain, head, copied) = ended.map_err(|error| Trouble::new(Kind::Target, error.to_string()))?;
        match copied? {
            None => {
                known.insert(chain, head);
            }
            Some(dropped) => {
                eprintln!("{}", left_out_because(chain, dropped));
                left_out.insert(chain);
            }
        }
    }
}

/// Or the event up to which the chain was dropped before it could be copied.
async fn copy_one(
    from: &dyn Store,
    to: &dyn Store,
    chain: ChainId,
    head: Head,
    bar: &ProgressBar,
) -> Result<Option<u64>, Trouble> {
    let there = from.head(chain).await.map_err(Trouble::source)?;
    is_whole(&there)?;
    let dropped = dropped_before(&there, to, chain).await?;
    if dropped.is_some() {
        return Ok(dropped);
    }
    copy_chain(from, to, chain, head, Window::SinceEvents, bar).await?;
    ends_with(to, chain, head).await.map(|()| None)
}

/// A copy is never made shorter.
fn not_behind(known: &BTreeMap<ChainId, Head>, heads: &BTreeMap<ChainId, Head>) -> Result<(), Trouble> {
    for (chain, had) in known {
        let found = heads.get(chain).copied().unwrap_or(Head::EMPTY);
        let is_other = found.chain_seq == had.chain_seq && found != *had;
        if found.chain_seq < had.chain_seq || is_other {
            return Err(Trouble::new(
                Kind::Usage,
                format!(
                    "chain {chain} ends at {} in the database, but at {} in this copy{}. The copy is unchanged and may have the events that the database lost: keep it, and use a new directory",
                    found.chain_seq,
                    had.chain_seq,
                    if is_other { ", with another hash" } else { "" }
                ),
            ));
        }
    }
    Ok(())
}

/// Replaces the accounts of the copy, if they are not the same.
async fn copy_accounts(from: &Opened, to: &Opened, known: &mut ControlSnapshot) -> Result<(), Trouble> {
    let accounts = from.control().export().await.map_err(Trouble::source)?;
    if accounts != *known {
        to.control().replace(accounts.clone()).await.map_err(Trouble::target)?;
        *known = accounts;
    }
    Ok(())
}
