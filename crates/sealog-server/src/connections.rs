//! Which connections there are: a limit for all, a limit for each client address, and who makes room when a
//! place is short.
//!
//! A client that opens connections and says nothing must not keep others out. When an address has as many
//! connections as it may have, or the server as many as it can have, a newcomer takes the place of a
//! connection that is not being used: one that never sent a request, else one that is idle between requests;
//! when the server is full, of the address that has the most. Only when all of them are in use is the
//! newcomer turned away (its address has too many) or kept waiting (the server has).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sealog_store::sync::lock;
use tokio::sync::Notify;

use crate::limits::{Counted, counted_address};

/// Connections that are looked at for one that is not in use. Looking goes on where it ended the last time.
const LOOKED_AT_MAX: usize = 64;
/// Connections that were told to end and have not yet, beyond the limit for all.
const ENDING_MAX: usize = 64;
/// Requests at a time that all HTTP/2 connections may have together. Each costs some 10 KB before it has an
/// answer: 64 of each of 512 connections were 300 MB.
const STREAMS_MAX: u32 = 2048;
/// What one connection may have of them: the first ones this many, each later one less, and never fewer than
/// the least.
const STREAMS_OF_ONE: std::ops::RangeInclusive<u32> = 4..=64;
/// HTTP/2 connections at a time. Clients that connect beyond it agree on HTTP/1.1: a connection with several
/// requests can keep several times as much in memory.
const HTTP_2_MAX: u32 = 512;

/// All connections of the server, on all event loops.
#[derive(Debug)]
pub(crate) struct Connections {
    max: usize,
    /// 0 for no limit.
    per_address_max: usize,
    table: Mutex<Table>,
    /// Event loops with a newcomer in hand.
    newcomers: AtomicUsize,
    /// HTTP/2 connections, and what they may have under way together.
    http_2: Mutex<Granted>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Granted {
    connections: u32,
    streams: u32,
}

#[derive(Debug, Default)]
struct Table {
    next_id: u64,
    /// Those that were told to end included.
    total: usize,
    ending: usize,
    groups: HashMap<Group, Members>,
    /// The same groups by how many members they have.
    by_size: BTreeSet<(usize, Group)>,
}

/// Connections that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Group {
    client: bool,
    address: IpAddr,
}

/// Connections of a group in the order of their arrival, without those that were told to end.
#[derive(Debug, Default)]
struct Members {
    by_id: BTreeMap<u64, Arc<Usage>>,
    /// Where to look next for one that is not in use.
    look_from: u64,
}

/// What a connection is being used for. Changed by its own event loop, read by all.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    state: AtomicU8,
    /// The client does not take what was written.
    pub(crate) stalled: AtomicBool,
    end: Notify,
}

const SILENT: u8 = 0;
const BUSY: u8 = 1;
const IDLE: u8 = 2;

impl Usage {
    pub(crate) fn begin_request(&self) {
        self.state.store(BUSY, Ordering::Relaxed);
    }

    /// Tells the connection to end.
    pub(crate) fn end(&self) {
        self.end.notify_one();
    }

    /// Returns when the connection must make room for another.
    pub(crate) async fn ended(&self) {
        self.end.notified().await;
    }

    fn is(&self, state: u8) -> bool {
        self.state.load(Ordering::Relaxed) == state && !self.stalled.load(Ordering::Relaxed)
    }
}

/// A connection's place among all; free again when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    connections: Arc<Connections>,
    group: Group,
    id: u64,
    pub(crate) usage: Arc<Usage>,
}

/// How many requests an HTTP/2 connection may have under way; given back when dropped.
#[derive(Debug)]
pub(crate) struct StreamsGrant {
    connections: Arc<Connections>,
    pub(crate) count: u32,
}

impl Drop for StreamsGrant {
    fn drop(&mut self) {
        let mut granted = lock(&self.connections.http_2);
        granted.connections -= 1;
        granted.streams -= self.count;
    }
}

impl Place {
    /// None where there are as many HTTP/2 connections as there may be.
    pub(crate) fn streams(&self) -> Option<StreamsGrant> {
        let mut granted = lock(&self.connections.http_2);
        if granted.connections >= HTTP_2_MAX {
            return None;
        }
        let share = STREAMS_MAX.saturating_sub(granted.streams) * STREAMS_OF_ONE.end() / STREAMS_MAX;
        let count = share.clamp(*STREAMS_OF_ONE.start(), *STREAMS_OF_ONE.end());
        granted.connections += 1;
        granted.streams += count;
        Some(StreamsGrant { connections: Arc::clone(&self.connections), count })
    }
}

#[derive(Debug)]
pub(crate) enum Admitted {
    Yes(Place),
    /// Its address has as many connections as it may have, all of them in use.
    TooMany,
    /// The server has as many as it can have, all of them in use.
    Full,
}

impl Connections {
    /// One address gets at most half of all, however many it may have otherwise.
    pub(crate) fn new(max: usize, per_address_max: usize) -> Arc<Connections> {
        let per_address_max = if per_address_max == 0 { 0 } else { per_address_max.min(max.div_ceil(2)) };
        Arc::new(Connections {
            max,
            per_address_max,
            table: Mutex::default(),
            newcomers: AtomicUsize::new(0),
            http_2: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// A place for a connection from this address, as soon as there is one; nothing if its address has too
    /// many. Trusted proxies speak for many clients and have no limit of their own.
    pub(crate) async fn place(self: &Arc<Connections>, address: IpAddr, trusted: bool) -> Option<Place> {
        self.newcomers.fetch_add(1, Ordering::Relaxed);
        let _newcomer = Newcomer(self);
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Before looking, so that no change between the look and the wait is missed.
            changed.as_mut().enable();
            // Each look is short; together they see every connection before the newcomer waits.
            for _ in 0..=self.count() / LOOKED_AT_MAX {
                match self.admit(address, trusted) {
                    Admitted::Yes(place) => return Some(place),
                    Admitted::TooMany => return None,
                    Admitted::Full => tokio::task::yield_now().await,
                }
            }
            changed.await;
        }
    }

    pub(crate) fn admit(self: &Arc<Connections>, address: IpAddr, trusted: bool) -> Admitted {
        let Counted::Address(address) = counted_address(address) else {
            unreachable!("an address is counted as one")
        };
        let group = Group { client: !trusted, address };
        let mut table = self.table();
        let of_group = table.groups.get(&group).map_or(0, |members| members.by_id.len());
        if self.per_address_max > 0 && group.client && of_group >= self.per_address_max {
            // One for one: this address has no more than before, and nobody else's connection ends.
            if table.ending >= ENDING_MAX || !table.end_one_of(group) {
                return Admitted::TooMany;
            }
        } else if table.total >= self.max && (table.ending >= ENDING_MAX || !table.end_one()) {
            return Admitted::Full;
        }
        let (id, usage) = (table.next_id, Arc::new(Usage::default()));
        table.next_id += 1;
        table.total += 1;
        table.resize(group, |members| {
            members.by_id.insert(id, Arc::clone(&usage));
        });
        Admitted::Yes(Place { connections: Arc::clone(self), group, id, usage })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.table().total
    }

    /// Returns when there are none left.
    pub(crate) async fn none_left(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            self.newcomers.fetch_add(1, Ordering::Relaxed);
            let _newcomer = Newcomer(self);
            if self.count() == 0 {
                return;
            }
            changed.await;
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing under the lock can panic half way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place or a connection to take the place of may have become free.
    fn notify(&self) {
        if self.newcomers.load(Ordering::Relaxed) > 0 {
            self.changed.notify_waiters();
        }
    }
}

struct Newcomer<'a>(&'a Connections);

impl Drop for Newcomer<'_> {
    fn drop(&mut self) {
        self.0.newcomers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Place {
    /// The answer is with the connection, which waits for the next request.
    pub(crate) fn end_request(&self) {
        self.usage.state.store(IDLE, Ordering::Relaxed);
        self.connections.notify();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.connections.table();
        table.total -= 1;
        let mut known = false;
        table.resize(self.group, |members| known = members.by_id.remove(&self.id).is_some());
        if !known {
            table.ending -= 1;
        }
        drop(table);
        self.connections.notify();
    }
}

impl Table {
    fn resize(&mut self, group: Group, change: impl FnOnce(&mut Members)) {
        let members = self.groups.entry(group).or_default();
        let before = members.by_id.len();
        change(members);
        let after = members.by_id.len();
        if before > 0 {
            self.by_size.remove(&(before, group));
        }
        if after > 0 {
            self.by_size.insert((after, group));
        } else {
            self.groups.remove(&group);
        }
    }

    /// Tells a connection of the largest group that has one to spare to end; of trusted proxies only where no
    /// client has one.
    fn end_one(&mut self) -> bool {
        let by_size = |client: bool| {
            let groups = self.by_size.iter().rev().map(|(_, group)| *group);
            groups.filter(move |group| group.client == client).take(LOOKED_AT_MAX).collect::<Vec<_>>()
        };
        let groups = [by_size(true), by_size(false)].concat();
        groups.into_iter().any(|group| self.end_one_of(group))
    }

    /// Tells a connection of this group that is not in use to end.
    fn end_one_of(&mut self, group: Group) -> bool {
        let Some(members) = self.groups.get_mut(&group) else { return false };
        let (mut found, mut last) = (None, 0);
        let from = members.look_from;
        let in_turn = members.by_id.range(from..).chain(members.by_id.range(..from));
        for (id, usage) in in_turn.take(LOOKED_AT_MAX) {
            last = *id;
            if usage.is(SILENT) {
                found = Some(*id);
                break;
            }
            if found.is_none() && usage.is(IDLE) {
                found = Some(*id);
            }
        }
        members.look_from = last;
        let Some(id) = found else {
            // These are in use; the next look begins behind them.
            members.look_from = last + 1;
            return false;
        };
        self.resize(group, |members| {
            if let Some(usage) = members.by_id.remove(&id) {
                usage.end();
            }
        });
        self.ending += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn admitted(connections: &Arc<Connections>, from: &str) -> Place {
        match connections.admit(address(from), false) {
            Admitted::Yes(place) => place,
            other => panic!("{from}: {other:?}"),
        }
    }

    /// Whether a connection was told to end.
    fn told_to_end(place: &Place) -> bool {
        use std::task::{Context, Poll, Waker};
        let ended = std::pin::pin!(place.usage.ended());
        matches!(ended.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()))
    }

    #[test]
    fn an_address_at_its_limit_gives_up_a_silent_connection_then_an_idle_one_then_is_turned_away() {
        let connections = Connections::new(100, 3);
        let places: Vec<Place> = (0..3).map(|_| admitted(&connections, "10.0.0.1")).collect();
        places[0].usage.begin_request();
        places[1].usage.begin_request();
        places[1].end_request();
        let fourth = admitted(&connections, "10.0.0.1");
        fourth.usage.begin_request();
        assert!(told_to_end(&places[2]), "it never sent a request");
        let fifth = admitted(&connections, "10.0.0.1");
        fifth.usage.begin_request();
        assert!(told_to_end(&places[1]), "it is idle");
        assert!(matches!(connections.admit(address("10.0.0.1"), false), Admitted::TooMany));
        assert!(!told_to_end(&places[0]) && !told_to_end(&fourth) && !told_to_end(&fifth));
        let _other = admitted(&connections, "10.0.0.2");
    }

    #[test]
    fn many_connections_have_few_requests_each_and_the_first_again_many() {
        let connections = Connections::new(1024, 0);
        let places: Vec<Place> = (0..513).map(|_| admitted(&connections, "10.0.0.1")).collect();
        let granted: Vec<StreamsGrant> = places[..512].iter().filter_map(Place::streams).collect();
        assert!(places[512].streams().is_none(), "HTTP/1.1 is for the others");
        assert_eq!((granted[0].count, granted[511].count), (64, 4));
        let all: u32 = granted.iter().map(|grant| grant.count).sum();
        assert!(all <= STREAMS_MAX + 512 * STREAMS_OF_ONE.start(), "{all}");
        assert!(granted.is_sorted_by_key(|grant| std::cmp::Reverse(grant.count)));
        drop(granted);
        assert_eq!(places[512].streams().unwrap().count, 64);
    }

    #[test]
    fn a_connection_whose_client_does_not_take_its_answer_is_in_use() {
        let connections = Connections::new(100, 1);
        let first = admitted(&connections, "10.0.0.1");
        first.end_request();
        first.usage.stalled.store(true, Ordering::Relaxed);
        assert!(matches!(connections.admit(address("10.0.0.1"), false), Admitted::TooMany));
    }

    #[test]
    fn a_full_server_takes_the_place_from_the_address_that_has_the_most() {
        let connections = Connections::new(10, 0);
        let many: Vec<Place> = (0..7).map(|_| admitted(&connections, "10.0.0.1")).collect();
        let few: Vec<Place> = (0..3).map(|_| admitted(&connections, "10.0.0.2")).collect();
        let newcomer = admitted(&connections, "10.0.0.3");
        assert_eq!(many.iter().filter(|place| told_to_end(place)).count(), 1);
        assert!(!few.iter().any(told_to_end));
        drop((many, few, newcomer));
        let table = connections.table();
        assert_eq!((table.total, table.ending, table.groups.len(), table.by_size.len()), (0, 0, 0, 0));
    }

    #[test]
    fn a_server_whose_connections_are_all_in_use_lets_newcomers_wait() {
        let connections = Connections::new(2, 0);
        let places: Vec<Place> = (0..2).map(|_| admitted(&connections, "10.0.0.1")).collect();
        places.iter().for_each(|place| place.usage.begin_request());
        assert!(matches!(connections.admit(address("10.0.0.2"), false), Admitted::Full));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let waiting = {
                let connections = Arc::clone(&connections);
                tokio::spawn(async move { connections.place(address("10.0.0.2"), false).await })
            };
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            // One that becomes idle is enough.
            places[1].end_request();
            assert!(waiting.await.unwrap().is_some());
            assert!(told_to_end(&places[1]));
        });
    }

    #[test]
    fn trusted_proxies_have_no_limit_of_their_own_and_are_the_last_to_make_room() {
        let connections = Connections::new(10, 2);
        let proxy = |n: usize| match connections.admit(address("10.0.0.9"), true) {
            Admitted::Yes(place) => place,
            other => panic!("{n}: {other:?}"),
        };
        let of_proxy: Vec<Place> = (0..8).map(proxy).collect();
        let clients: Vec<Place> = (0..2).map(|_| admitted(&connections, "10.0.0.1")).collect();
        let _newcomer = admitted(&connections, "10.0.0.2");
        assert!(!of_proxy.iter().any(told_to_end));
        assert_eq!(clients.iter().filter(|place| told_to_end(place)).count(), 1);
    }

    #[test]
    fn ipv6_is_counted_by_its_first_64_bits_and_one_address_gets_at_most_half() {
        let connections = Connections::new(4, 1000);
        let places = ["2001:db8::1", "2001:db8::2"].map(|from| admitted(&connections, from));
        places.iter().for_each(|place| place.usage.begin_request());
        assert!(matches!(connections.admit(address("2001:db8::3"), false), Admitted::TooMany));
        let _other = admitted(&connections, "2001:db8:0:1::1");
    }

    #[test]
    fn a_newcomer_costs_a_look_at_few_connections_however_many_there_are() {
        let connections = Connections::new(20_000, 0);
        let places: Vec<Place> = (0..20_000).map(|_| admitted(&connections, "10.0.0.1")).collect();
        places.iter().for_each(|place| place.usage.begin_request());
        // The only idle one is found after as many looks as it takes to get there, and no look is longer than
        // the others.
        places[1000].end_request();
        let mut looks = 0;
        while matches!(connections.admit(address("10.0.0.2"), false), Admitted::Full) {
            looks += 1;
            assert!(looks <= 1000 / LOOKED_AT_MAX + 1);
        }
        assert_eq!(looks, 1000 / LOOKED_AT_MAX);
        assert!(told_to_end(&places[1000]));
    }
}
