//! `sealog copy`: everything from one store into another, verified on the way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_control::{ControlSnapshot, KeptSearch, Snapshot};
use sealog_core::chain::Head;
use sealog_core::event::{BATCH_EVENTS_MAX, StoredEvent};
use sealog_core::id::ChainId;
use sealog_core::verify::Item;
use sealog_service::Secret;
use sealog_store::world::{SystemWorld, World};
use sealog_store::{IDEMPOTENCY_RETENTION_MS, KeptKey, Range, Store, StoreError, WantedKeys};
use serde_json::json;

use crate::cli::exit::{EXIT_CODES, Exit, Failure};
use crate::store::{Opened, Place};

/// What is read at a time, and written while the next is read.
const PIECE_BYTES: usize = 4 << 20;
/// Idempotency keys that are read at a time. A store may look at all keys of a chain for each piece.
const PIECE_KEYS: usize = 20_000;
/// How far the clocks of two stores may be apart: a key that one of them still counts is copied, one that both count must have arrived.
const CLOCKS_APART_MS: u64 = 60_000;

pub(crate) fn command() -> Command {
    let store = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("STORE").required(true).help(help)
    };
    Command::new("copy")
        .about("Copies everything from one store into another")
        .long_about(
            "Copies everything from one store into another. A store is a data directory, or the postgres:// URL of a database.\n\n\
             Events are copied as they were sealed, and each is verified against the one before it before it is written; at the end the heads of all chains are equal, \
             so every hash is. Idempotency keys that still count go with their events, so a request that is sent again after the copy is answered as before. \
             Accounts, keys, sessions and waiting mails are copied too.\n\n\
             The target must be empty, or what an earlier copy of the same store has left: then it goes on from there. That is checked before anything is written: every chain of the target \
             is the beginning of the source's, and nothing in its accounts is newer. Stop the servers of both stores first, \
             or copy once while they run and once more, which is quick, when they are stopped.",
        )
        .arg(store("from", "The store to read"))
        .arg(store("to", "The store to write"))
        .arg(
            Arg::new(REPLACE_ACCOUNTS)
                .long(REPLACE_ACCOUNTS)
                .action(ArgAction::SetTrue)
                .help("Takes the source's accounts where both stores have accounts that differ and nothing shows which are newer"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Prints one JSON object for machines"))
        .after_help(EXIT_CODES)
}

const REPLACE_ACCOUNTS: &str = "replace-accounts";

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let given = |name: &str| matches.get_one::<String>(name).expect("clap asks for it").as_str();
    let at = |name: &'static str| move |failure: Failure| prefixed(format!("--{name}"), &failure);
    must_exist(given("from")).map_err(at("from"))?;
    let from = open(given("from")).map_err(at("from"))?;
    let to = open(given("to")).map_err(at("to"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let copied = runtime.block_on(copy(&from, &to, matches.get_flag(REPLACE_ACCOUNTS)));
    from.close();
    to.close();
    let Copied { events, chains } = copied?;
    if matches.get_flag("json") {
        println!("{}", json!({ "events": events, "chains": chains }));
    } else {
        println!("copied {events} events; {chains} chains end with the same hash in both stores");
    }
    Ok(ExitCode::SUCCESS)
}

fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// To open a directory makes it a store; a misspelt source must not become one.
fn must_exist(text: &str) -> Result<(), Failure> {
    if is_url(text) || Path::new(text).join("FORMAT").is_file() {
        return Ok(());
    }
    Err(Failure::usage(format!("there is no store in {text}")))
}

fn open(text: &str) -> Result<Opened, Failure> {
    let place = if is_url(text) { Place::Postgres(Secret(text.to_owned())) } else { Place::Embedded };
    Ok(Opened::open_unmarked(&place, Path::new(text))?)
}

fn prefixed(place: impl std::fmt::Display, failure: &Failure) -> Failure {
    Failure::new(failure.exit, format!("{place}: {}", failure.message))
}

/// For errors of one chain.
fn of_chain(chain: ChainId) -> impl Fn(Failure) -> Failure {
    move |failure| prefixed(format!("chain {chain}"), &failure)
}

/// An event of the source is not there, or not as it was sealed.
fn broken(problem: String) -> Failure {
    Failure::new(Exit::Broken, problem)
}

/// Whoever mixes up the two stores must not lose one of them: both are checked before anything is written.
async fn copy(from: &Opened, to: &Opened, replace_accounts: bool) -> Result<Copied, Failure> {
    let (source, target) = (from.control(), to.control());
    let checked = async {
        let goes_on = check_events(&*from.store(), &*to.store()).await?;
        let (source, target) = (source.export().await.map_err(text)?, target.export().await.map_err(text)?);
        check_accounts(&source, &target, goes_on || replace_accounts)?;
        Ok::<_, Failure>((source != target).then_some(source))
    };
    let unwritten =
        |failure: Failure| Failure::new(failure.exit, format!("{}. Nothing was written", failure.message));
    let accounts = checked.await.map_err(unwritten)?;
    if let Some(accounts) = accounts {
        target.replace(accounts.clone()).await.map_err(text)?;
        if target.export().await.map_err(text)? != accounts {
            return Err("the accounts in the target are not those of the source".to_owned().into());
        }
    }
    copy_events(&*from.store(), &*to.store()).await
}

/// What to say of a target that is not the beginning of the source.
fn wrong_way(problem: &str) -> Failure {
    Failure::usage(format!(
        "{problem}. The target must be empty or hold an earlier copy of the source; are --from and --to the wrong way round?"
    ))
}

/// Every chain of the target must be the beginning of the source's. Whether the source has events that the target does not have.
async fn check_events(from: &dyn Store, to: &dyn Store) -> Result<bool, Failure> {
    let (source, target) = (from.heads().await.map_err(text)?, to.heads().await.map_err(text)?);
    let known: BTreeMap<ChainId, Head> = source.iter().copied().collect();
    let mut goes_on = false;
    let begun: BTreeSet<ChainId> = target.iter().map(|(chain, _)| *chain).collect();
    for (chain, _) in source.iter().filter(|(chain, _)| !begun.contains(chain)) {
        goes_on |= dropped_before(from, to, *chain).await?.is_none();
    }
    for (chain, begun) in &target {
        let head = known.get(chain).copied().unwrap_or(Head::EMPTY);
        if head == Head::EMPTY {
            return Err(wrong_way(&format!(
                "the target has a chain that the source does not have ({chain})"
            )));
        }
        if begun.chain_seq > head.chain_seq {
            return Err(wrong_way(&format!(
                "chain {chain} has {} events in the target and only {} in the source",
                begun.chain_seq, head.chain_seq
            )));
        }
        if dropped_before(from, to, *chain).await?.is_some() {
            continue;
        }
        let same = event_at(from, *chain, begun.chain_seq).await;
        if same.map_err(of_chain(*chain))?.head() != *begun {
            return Err(wrong_way(&format!(
                "chain {chain}: the target has another event {} than the source",
                begun.chain_seq
            )));
        }
        if to.head(*chain).await.map_err(text)?.recorded != *begun {
            return Err(broken(format!(
                "chain {chain}: the target has lost its events from {} on",
                begun.chain_seq + 1
            )));
        }
        goes_on |= begun.chain_seq < head.chain_seq;
    }
    for (chain, head) in &source {
        let there = from.head(*chain).await.map_err(text)?;
        // A copy has no record of what was replaced: it would be as good as new.
        if there.recorded.chain_seq <= there.durable.chain_seq && there.recorded != there.durable {
            return Err(broken(format!(
                "chain {chain}: the source has another event {} than the one on record; accept the loss first (sealog accept-loss)",
                there.recorded.chain_seq
            )));
        }
        if there.recorded.chain_seq > head.chain_seq {
            return Err(broken(format!(
                "chain {chain}: the source has lost its events from {} on",
                head.chain_seq + 1
            )));
        }
    }
    Ok(goes_on)
}

/// The target's accounts must be older than the source's, or the same, or none. `may_be_older`: something else says that they are.
fn check_accounts(
    source: &ControlSnapshot,
    target: &ControlSnapshot,
    may_be_older: bool,
) -> Result<(), Failure> {
    if let Some(newer) = newer_in(target, source) {
        return Err(wrong_way(&format!("the target has {newer} that the source does not have")));
    }
    let older = source == target
        || *target == ControlSnapshot::default()
        || may_be_older
        || newer_in(source, target).is_some();
    if older {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "both stores have the same events, and their accounts differ in a way that does not show which are newer. If those of --from are, add --{REPLACE_ACCOUNTS}"
    )))
}

/// Something that shows that these accounts went on after the others had become a copy of them: nothing is ever deleted, and some changes are never taken back. Names, plans and
/// rates show nothing, since they carry no time.
fn newer_in(these: &ControlSnapshot, others: &ControlSnapshot) -> Option<String> {
    fn missing<'a, T, K: Ord>(these: &'a [T], others: &[T], key: impl Fn(&T) -> K) -> Option<&'a T> {
        let known: BTreeSet<K> = others.iter().map(&key).collect();
        these.iter().find(|item| !known.contains(&key(item)))
    }
    if let Some(tenant) = missing(&these.tenants, &others.tenants, |tenant| tenant.id) {
        return Some(format!("a tenant ({})", tenant.id));
    }
    if let Some((project, _)) = missing(&these.projects, &others.projects, |(project, _)| project.id) {
        return Some(format!("a project ({})", project.id));
    }
    if let Some((tenant_id, project_id)) =
        missing(&these.system_projects, &others.system_projects, |system| *system)
    {
        return Some(format!("a system project ({project_id}, of the tenant {tenant_id})"));
    }
    if let Some((key, _)) = missing(&these.keys, &others.keys, |(key, _)| key.id) {
        return Some(format!("a key ({})", key.id.0));
    }
    if let Some((_, action)) = missing(&these.actions, &others.actions, |(tenant_id, action)| {
        (*tenant_id, action.action.action.clone())
    }) {
        return Some(format!("a custom action ({})", action.action.action));
    }
    if let Some(view) = missing(&these.saved_views, &others.saved_views, |view| view.id) {
        return Some(format!("a saved view ({})", view.id));
    }
    if let Some((person, _)) = missing(&these.persons, &others.persons, |(person, _)| person.id) {
        return Some(format!("a user ({})", person.id.0));
    }
    if let Some(member) =
        missing(&these.memberships, &others.memberships, |member| (member.tenant_id, member.person_id))
    {
        return Some(format!("a member ({}, of the tenant {})", member.person_id.0, member.tenant_id));
    }
    if let Some(user) = missing(&these.ops_users, &others.ops_users, |user| user.id) {
        return Some(format!("an operator ({})", user.id.0));
    }
    // Those of the schedule are removed after a time.
    let asked_for = |snapshot: &ControlSnapshot| {
        snapshot.jobs.iter().filter(|job| job.person_id.is_some()).cloned().collect::<Vec<_>>()
    };
    if let Some(job) = missing(&asked_for(these), &asked_for(others), |job| job.id) {
        return Some(format!("a job ({})", job.id.0));
    }
    if let Some(export) = missing(&these.exports, &others.exports, |export| export.new.id) {
        return Some(format!("an export ({})", export.new.id.0));
    }
    if let Some(entry) =
        missing(&these.case_entries, &others.case_entries, |entry| (entry.case_id, entry.revision))
    {
        return Some(format!("a case, or a step of it ({})", entry.case_id.0));
    }
    let search = |kept: &KeptSearch| kept.search.new.id;
    if let Some(kept) = missing(&these.case_searches, &others.case_searches, search) {
        return Some(format!("a search of a case ({})", kept.search.new.id.0));
    }
    if let Some(package) = missing(&these.case_packages, &others.case_packages, |package| package.new.id) {
        return Some(format!("a package of a case ({})", package.new.id.0));
    }
    let revoked = |snapshot: &ControlSnapshot| {
        let revoked = snapshot.keys.iter().filter(|(key, _)| key.revoked_at_ms.is_some());
        revoked.map(|(key, _)| key.id).collect::<Vec<_>>()
    };
    if let Some(key) = missing(&revoked(these), &revoked(others), |key| *key) {
        return Some(format!("a revocation (of the key {})", key.0));
    }
    // A beginning and an end are two changes.
    let frameworks = |snapshot: &ControlSnapshot| {
        let projects = snapshot.projects.iter();
        let enabled = projects.flat_map(|(project, enabled)| enabled.iter().map(|one| (project.id, *one)));
        let changes = enabled.flat_map(|(project, one)| {
            let ended =
                one.disabled_at_ms.map(|_| (project, one.framework, one.enabled_at_ms, one.disabled_at_ms));
            [Some((project, one.framework, one.enabled_at_ms, None)), ended]
        });
        changes.flatten().collect::<Vec<_>>()
    };
    if let Some((project, ..)) = missing(&frameworks(these), &frameworks(others), |change| *change) {
        return Some(format!("a change of frameworks (of the project {project})"));
    }
    let sent = |snapshot: &ControlSnapshot| {
        let sent =
            snapshot.notices.iter().filter(|notice| notice.sent_at_ms.or(notice.given_up_at_ms).is_some());
        sent.map(|notice| notice.key.clone()).collect::<Vec<_>>()
    };
    missing(&sent(these), &sent(others), Clone::clone).map(|key| format!("a mail that was sent ({key})"))
}

struct Copied {
    events: u64,
    chains: usize,
}

async fn copy_events(from: &dyn Store, to: &dyn Store) -> Result<Copied, Failure> {
    let mut source = Vec::new();
    for (chain, head) in from.heads().await.map_err(text)? {
        match dropped_before(from, to, chain).await? {
            None => source.push((chain, head)),
            // Its first event cannot be proven to a store that has never had those before it.
            Some(dropped) => eprintln!(
                "chain {chain}: not copied, since its test events up to {dropped} were dropped for their age"
            ),
        }
    }
    let mut events = 0;
    for (number, (chain, head)) in (1..).zip(&source) {
        let copied = copy_chain(from, to, *chain, *head).await.map_err(of_chain(*chain))?;
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
            return Err(broken(format!(
                "chain {chain} ends at {} in the target and at {} in the source",
                there.chain_seq, head.chain_seq
            )));
        }
        compare_keys(from, to, *chain).await.map_err(of_chain(*chain))?;
    }
    Ok(Copied { events, chains: source.len() })
}

/// The last event that was dropped of a chain, if the target would need it to go on.
async fn dropped_before(from: &dyn Store, to: &dyn Store, chain: ChainId) -> Result<Option<u64>, Failure> {
    let dropped = from.head(chain).await.map_err(text)?.dropped.chain_seq;
    let begun = to.head(chain).await.map_err(text)?.durable.chain_seq;
    Ok(Some(dropped).filter(|dropped| *dropped > begun))
}

/// Every key that still counts in the source must be in the target, with the same answer.
async fn compare_keys(from: &dyn Store, to: &dyn Store, chain: ChainId) -> Result<(), Failure> {
    let after_ms = counting_after_ms() + CLOCKS_APART_MS;
    let (mut source, mut target) = (Keys::new(from, chain, 1, after_ms), Keys::new(to, chain, 1, after_ms));
    while let Some(key) = source.next().await? {
        if target.next().await? != Some(key) {
            let missing = format!("the idempotency key of event {} is not in the target", key.first_seq);
            return Err(missing.into());
        }
    }
    Ok(())
}

/// Keys that were received before have expired by this clock.
fn counting_after_ms() -> u64 {
    SystemWorld.now_ms().saturating_sub(IDEMPOTENCY_RETENTION_MS)
}

/// Copies what the target does not have. How much that was.
async fn copy_chain(from: &dyn Store, to: &dyn Store, chain: ChainId, head: Head) -> Result<u64, Failure> {
    let begun = to.head(chain).await.map_err(text)?.durable;
    let mut next = begun.chain_seq + 1;
    let mut keys = Keys::new(from, chain, next, counting_after_ms().saturating_sub(CLOCKS_APART_MS));
    let mut events = VecDeque::new();
    let mut written = Vec::new();
    while next <= head.chain_seq {
        let range = Range { from: next, to: head.chain_seq, bytes_max: PIECE_BYTES };
        let piece = from.range(chain, range).await.map_err(text)?;
        let held = events.len();
        for item in piece.items {
            match item {
                Item::Event(event) if event.sealed.chain_seq == next => events.push_back(*event),
                Item::Event(_) => return Err(broken(format!("event {next} is missing in the source"))),
                Item::Damaged { chain_seq } => {
                    return Err(broken(format!("event {chain_seq} is damaged in the source")));
                }
            }
            next += 1;
        }
        if events.len() == held {
            return Err(broken(format!("event {next} is missing in the source")));
        }
        // What was handed over before is written while this piece was read.
        finish(&mut written).await?;
        while let Some((request, key)) = keys.cut(&mut events).await? {
            written.push(to.import(chain, request, key));
        }
    }
    finish(&mut written).await?;
    if let Some(event) = events.front() {
        let first = event.sealed.chain_seq;
        return Err(broken(format!("the request of event {first} ends behind the chain")));
    }
    Ok(head.chain_seq - begun.chain_seq)
}

/// The idempotency keys of a chain, read piece by piece.
struct Keys<'a> {
    store: &'a dyn Store,
    chain: ChainId,
    wanted: WantedKeys,
    read: VecDeque<KeptKey>,
    /// The store has no more than were read.
    whole: bool,
}

impl<'a> Keys<'a> {
    fn new(store: &'a dyn Store, chain: ChainId, from: u64, received_after_ms: u64) -> Keys<'a> {
        let wanted = WantedKeys { from, received_after_ms, limit: PIECE_KEYS };
        Keys { store, chain, wanted, read: VecDeque::new(), whole: false }
    }

    async fn peek(&mut self) -> Result<Option<KeptKey>, Failure> {
        if self.read.is_empty() && !self.whole {
            self.read = self.store.kept_keys(self.chain, self.wanted).await.map_err(text)?.into();
            self.whole = self.read.len() < self.wanted.limit;
            self.wanted.from = self.read.back().map_or(self.wanted.from, |last| last.first_seq + 1);
        }
        Ok(self.read.front().copied())
    }

    async fn next(&mut self) -> Result<Option<KeptKey>, Failure> {
        self.peek().await?;
        Ok(self.read.pop_front())
    }

    /// Takes what is to be imported next off the front: a request with its key, or events before the next one that has a key.
    /// Nothing when there is nothing, or only a part of a request.
    async fn cut(
        &mut self,
        events: &mut VecDeque<StoredEvent>,
    ) -> Result<Option<(Vec<StoredEvent>, Option<KeptKey>)>, Failure> {
        let Some(first) = events.front() else { return Ok(None) };
        let key = self.peek().await?;
        let Some(key) = key else {
            let count = events.len().min(BATCH_EVENTS_MAX);
            return Ok(Some((events.drain(..count).collect(), None)));
        };
        match key.first_seq.checked_sub(first.sealed.chain_seq) {
            None => Err(broken(format!("two idempotency keys of the source claim event {}", key.first_seq))),
            Some(0) if events.len() < key.events => Ok(None),
            Some(0) => {
                self.read.pop_front();
                Ok(Some((events.drain(..key.events).collect(), Some(key))))
            }
            Some(before) => {
                let before = usize::try_from(before).unwrap_or(usize::MAX);
                let count = events.len().min(BATCH_EVENTS_MAX).min(before);
                Ok(Some((events.drain(..count).collect(), None)))
            }
        }
    }
}

/// Waits for pieces in their order. The target has verified each event against the one before it.
async fn finish(
    written: &mut Vec<sealog_store::BoxFuture<'_, Result<Head, StoreError>>>,
) -> Result<(), Failure> {
    for piece in written.drain(..) {
        piece.await.map_err(|error| match error {
            // An event that does not follow the one before it.
            StoreError::Refused(_) => broken(error.to_string()),
            error => Failure::from(error.to_string()),
        })?;
    }
    Ok(())
}

async fn event_at(store: &dyn Store, chain: ChainId, seq: u64) -> Result<StoredEvent, Failure> {
    let range = Range { from: seq, to: seq, bytes_max: 1 };
    match store.range(chain, range).await.map_err(text)?.items.pop() {
        Some(Item::Event(event)) => Ok(*event),
        Some(Item::Damaged { .. }) => Err(broken(format!("event {seq} is damaged in the source"))),
        None => Err(broken(format!("event {seq} is missing in the source"))),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn text(error: StoreError) -> String {
    error.to_string()
}
