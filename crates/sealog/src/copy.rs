//! `sealog copy`: everything from one store into another, verified on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::{Arg, ArgMatches, Command};
use sealog_core::chain::Head;
use sealog_core::event::{BATCH_EVENTS_MAX, StoredEvent};
use sealog_core::id::ChainId;
use sealog_core::verify::Item;
use sealog_server::config::Secret;
use sealog_store::accounts::Accounts;
use sealog_store::{Range, Store, StoreError};

use crate::store::{Opened, Place};

/// What is read at a time, and written while the next is read.
const PIECE_BYTES: usize = 4 << 20;

pub(crate) fn command() -> Command {
    let store = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("STORE").required(true).help(help)
    };
    Command::new("copy")
        .about("Copies everything from one store into another")
        .long_about(
            "Copies everything from one store into another. A store is a data directory, or the postgres:// URL of a database.\n\n\
             Events are copied as they were sealed, and each is verified against the one before it before it is written; at the end the heads of all chains are equal, \
             so every hash is. Accounts, keys and waiting mails are copied too. Sessions of the dashboard are not, nor are idempotency keys: \
             a request that was sent before the copy and is sent again after it is stored again.\n\n\
             The target must be empty, or what an earlier copy of the same store has left: then it goes on from there. Stop the servers of both stores first, \
             or copy once while they run and once more, which is quick, when they are stopped.",
        )
        .arg(store("from", "The store to read"))
        .arg(store("to", "The store to write"))
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), String> {
    let open = |name: &str| {
        let text = matches.get_one::<String>(name).expect("clap asks for it");
        open(text).map_err(|error| format!("--{name}: {error}"))
    };
    let (from, to) = (open("from")?, open("to")?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let copied = runtime.block_on(async {
        copy_accounts(&*from.accounts(), &*to.accounts()).await?;
        copy_events(&*from.store(), &*to.store()).await
    });
    from.close();
    to.close();
    let Copied { events, chains } = copied?;
    println!("copied {events} events; {chains} chains end with the same hash in both stores");
    Ok(())
}

fn open(text: &str) -> Result<Opened, String> {
    let url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    let place = if url { Place::Postgres(Secret(text.to_owned())) } else { Place::Embedded };
    Opened::open_unmarked(&place, Path::new(text))
}

/// Whoever mixes up the two stores must not lose one of them.
async fn copy_accounts(from: &dyn Accounts, to: &dyn Accounts) -> Result<(), String> {
    let (source, target) = (from.export().await.map_err(text)?, to.export().await.map_err(text)?);
    if source == target {
        return Ok(());
    }
    let known: BTreeSet<_> = source.tenants.iter().map(|tenant| tenant.id).collect();
    if let Some(other) = target.tenants.iter().find(|tenant| !known.contains(&tenant.id)) {
        return Err(format!(
            "the target has a tenant that the source does not have ({}); nothing was copied",
            other.id
        ));
    }
    to.replace(source.clone()).await.map_err(text)?;
    let written = to.export().await.map_err(text)?;
    if written != source {
        return Err("the accounts in the target are not those of the source".into());
    }
    Ok(())
}

struct Copied {
    events: u64,
    chains: usize,
}

async fn copy_events(from: &dyn Store, to: &dyn Store) -> Result<Copied, String> {
    let (source, target) = (from.heads().await.map_err(text)?, to.heads().await.map_err(text)?);
    let known: BTreeMap<ChainId, Head> = source.iter().copied().collect();
    if let Some((chain, _)) = target.iter().find(|(chain, _)| !known.contains_key(chain)) {
        return Err(format!(
            "the target has a chain that the source does not have ({chain}); no event was copied"
        ));
    }
    let mut events = 0;
    for (number, (chain, head)) in (1..).zip(&source) {
        let copied =
            copy_chain(from, to, *chain, *head).await.map_err(|error| format!("chain {chain}: {error}"))?;
        events += copied;
        eprintln!(
            "chain {number} of {}: {} events, {copied} of them copied now",
            source.len(),
            head.chain_seq
        );
    }
    for (chain, head) in &source {
        let there = to.head(*chain).await.map_err(text)?.durable;
        if there != *head {
            return Err(format!(
                "chain {chain} ends at {} in the target and at {} in the source",
                there.chain_seq, head.chain_seq
            ));
        }
    }
    Ok(Copied { events, chains: source.len() })
}

/// Copies what the target does not have. How much that was.
async fn copy_chain(from: &dyn Store, to: &dyn Store, chain: ChainId, head: Head) -> Result<u64, String> {
    let recorded = from.head(chain).await.map_err(text)?.recorded;
    if recorded.chain_seq > head.chain_seq {
        return Err(format!(
            "the source has lost its events from {} on; nothing of it was copied",
            head.chain_seq + 1
        ));
    }
    let begun = to.head(chain).await.map_err(text)?.durable;
    if begun.chain_seq > head.chain_seq
        || (begun.chain_seq > 0 && event_at(from, chain, begun.chain_seq).await?.head() != begun)
    {
        return Err(format!("the target has another event {} than the source", begun.chain_seq));
    }
    let mut next = begun.chain_seq + 1;
    let mut written = Vec::new();
    while next <= head.chain_seq {
        let range = Range { from: next, to: head.chain_seq, bytes_max: PIECE_BYTES };
        let piece = from.range(chain, range).await.map_err(text)?;
        let mut events = Vec::with_capacity(piece.items.len());
        for item in piece.items {
            match item {
                Item::Event(event) if event.sealed.chain_seq == next => events.push(*event),
                Item::Event(_) => return Err(format!("event {next} is missing in the source")),
                Item::Damaged { chain_seq } => {
                    return Err(format!("event {chain_seq} is damaged in the source"));
                }
            }
            next += 1;
        }
        if events.is_empty() {
            return Err(format!("event {next} is missing in the source"));
        }
        // What was handed over before is written while this piece was read.
        finish(&mut written).await?;
        while !events.is_empty() {
            let rest = events.split_off(events.len().min(BATCH_EVENTS_MAX));
            written.push(to.import(chain, std::mem::replace(&mut events, rest)));
        }
    }
    finish(&mut written).await?;
    Ok(head.chain_seq - begun.chain_seq)
}

/// Waits for pieces in their order. The target has verified each event against the one before it.
async fn finish(
    written: &mut Vec<sealog_store::BoxFuture<'_, Result<Head, StoreError>>>,
) -> Result<(), String> {
    for piece in written.drain(..) {
        piece.await.map_err(text)?;
    }
    Ok(())
}

async fn event_at(store: &dyn Store, chain: ChainId, seq: u64) -> Result<StoredEvent, String> {
    let range = Range { from: seq, to: seq, bytes_max: 1 };
    match store.range(chain, range).await.map_err(text)?.items.pop() {
        Some(Item::Event(event)) => Ok(*event),
        Some(Item::Damaged { .. }) => Err(format!("event {seq} is damaged in the source")),
        None => Err(format!("event {seq} is missing in the source")),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn text(error: StoreError) -> String {
    error.to_string()
}
