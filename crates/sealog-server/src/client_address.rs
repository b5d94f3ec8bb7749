//! Whose request it is, by address: the peer's, or what trusted proxies say of it. Spec 8.2.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;

use hyper::HeaderMap;
use hyper::header::HeaderValue;
use ipnet::IpNet;
use sealog_service::ingest::Client;
use sealog_store::sync::lock;

/// Entries of `X-Forwarded-For` that are looked at, from the right, and the most bytes that one may have. An
/// address in brackets with a port has 53; the rest is for spaces. So a header costs at most 32 times 65
/// bytes and 32 comparisons with the trusted ranges, however long it is.
const HOPS_MAX: usize = 32;
const HOP_BYTES_MAX: usize = 64;

/// Headers by which a proxy tells that it passes a request on.
const FORWARDED: [&str; 4] = ["x-forwarded-for", "forwarded", "x-real-ip", "via"];
/// Those of them that claim another client than the peer.
const CLAIMS: [&str; 2] = [FORWARDED[0], FORWARDED[1]];

/// How long nothing more is said of a peer whose claims are not believed.
const SAY_EVERY_MS: u64 = 60 * 60 * 1000;
/// Peers that are remembered for it. Anybody can send such a header from many addresses: beyond these,
/// nothing is said.
const PEERS_MAX: usize = 256;

/// The peer; behind trusted proxies, the right-most address in `X-Forwarded-For` that is not a proxy's. What
/// stands further left is what a client claims.
pub(crate) fn behind(peer: &Client, headers: &HeaderMap, proxies: &[IpNet]) -> Client {
    if !is_proxy(peer.address, proxies) {
        return peer.clone();
    }
    let lines = headers.get_all(FORWARDED[0]).iter().map(HeaderValue::as_bytes);
    let address = forwarded_for(peer.address, lines, |address| is_proxy(address, proxies));
    if address == peer.address { peer.clone() } else { Client::new(address) }
}

/// Peers that claim to pass requests on and are no trusted proxies: whoever forgot to name a proxy finds its
/// address in every event, and is told why.
#[derive(Debug, Default)]
pub(crate) struct UntrustedForwarders(Mutex<HashMap<IpAddr, u64>>);

impl UntrustedForwarders {
    /// Logs that a claim was not believed, once an hour for each peer.
    pub(crate) fn look(&self, peer: IpAddr, headers: &HeaderMap, proxies: &[IpNet], now_ms: u64) {
        let Some(header) = CLAIMS.into_iter().find(|name| headers.contains_key(*name)) else { return };
        if !is_proxy(peer, proxies) && self.is_due(peer.to_canonical(), now_ms) {
            tracing::warn!(
                %peer,
                header,
                "ignored forwarding header from untrusted peer; add it to trusted_proxies (SEALOG_TRUSTED_PROXIES) if it is your proxy (logged once an hour)"
            );
        }
    }

    fn is_due(&self, peer: IpAddr, now_ms: u64) -> bool {
        let mut said = lock(&self.0);
        let is_recent = |at: u64| now_ms.saturating_sub(at) < SAY_EVERY_MS;
        if said.get(&peer).is_some_and(|at| is_recent(*at)) {
            return false;
        }
        if said.len() >= PEERS_MAX {
            said.retain(|_, at| is_recent(*at));
        }
        if said.len() >= PEERS_MAX {
            return false;
        }
        said.insert(peer, now_ms);
        true
    }
}

/// Whether a request was made on this machine. Behind a proxy on the same machine everyone comes from
/// loopback: what was passed on by someone does not count.
pub(crate) fn is_local(peer: IpAddr, headers: &HeaderMap, proxies: &[IpNet]) -> bool {
    peer.to_canonical().is_loopback()
        && !is_proxy(peer, proxies)
        && !FORWARDED.iter().any(|name| headers.contains_key(*name))
}

/// Whether this is the address of a proxy that the operator trusts.
pub(crate) fn is_proxy(address: IpAddr, proxies: &[IpNet]) -> bool {
    let address = address.to_canonical();
    proxies.iter().any(|range| range.contains(&address))
}

/// Follows the hops from the right for as long as they are proxies. Several header lines are one list, in
/// their order.
fn forwarded_for<'h>(
    peer: IpAddr,
    lines: impl DoubleEndedIterator<Item = &'h [u8]>,
    is_proxy: impl Fn(IpAddr) -> bool,
) -> IpAddr {
    let mut client = peer;
    for hop in lines.rev().flat_map(|line| Hops(Some(line))).take(HOPS_MAX) {
        if hop.trim_ascii().is_empty() {
            continue;
        }
        // A hop that is no address was not written by a proxy that is trusted: nothing left of it can be
        // believed.
        let Some(address) = parse_hop(hop) else { break };
        client = address.to_canonical();
        if !is_proxy(client) {
            break;
        }
    }
    client
}

/// The entries of one header line, from the right.
struct Hops<'h>(Option<&'h [u8]>);

impl<'h> Iterator for Hops<'h> {
    type Item = &'h [u8];

    fn next(&mut self) -> Option<&'h [u8]> {
        let line = self.0?;
        // One byte more than a hop may have: either the comma before it is among them, or the hop is too
        // long.
        let begin = line.len().saturating_sub(HOP_BYTES_MAX + 1);
        let comma = line[begin..].iter().rposition(|byte| *byte == b',').map(|at| begin + at);
        self.0 = comma.map(|at| &line[..at]);
        Some(comma.map_or(&line[begin..], |at| &line[at + 1..]))
    }
}

/// An address, with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`,
/// `[2001:db8::1]:80`.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    if hop.len() > HOP_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(hop).ok()?.trim_ascii();
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let port_is_good = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return port_is_good.then(|| address.parse::<Ipv6Addr>().ok())?.map(IpAddr::V6);
    }
    // Without brackets a colon more or less is another IPv6 address, so only IPv4 can have a port.
    text.parse().ok().or_else(|| {
        let (address, port) = text.split_once(':')?;
        is_port(port).then(|| address.parse::<Ipv4Addr>().ok())?.map(IpAddr::V4)
    })
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const PEER: &str = "10.0.0.1";

    fn proxies() -> Vec<IpNet> {
        vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()]
    }

    fn headers(lines: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x-forwarded-for", HeaderValue::from_bytes(line).unwrap());
        }
        headers
    }

    fn client(lines: &[&[u8]]) -> String {
        let peer = Client::new(PEER.parse().unwrap());
        behind(&peer, &headers(lines), &proxies()).text.to_string()
    }

    #[test]
    fn the_right_most_address_that_is_no_proxy_is_the_clients_with_or_without_a_port() {
        for (lines, expected) in [
            (&[b"192.0.2.1".as_slice()] as &[&[u8]], "192.0.2.1"),
            (&[b"192.0.2.1:80"], "192.0.2.1"),
            (&[b"192.0.2.1:0"], "192.0.2.1"),
            (&[b" \t192.0.2.1:65535\t "], "192.0.2.1"),
            (&[b"2001:DB8::1"], "2001:db8::1"),
            (&[b"[2001:db8::1]"], "2001:db8::1"),
            (&[b"[2001:db8::1]:443"], "2001:db8::1"),
            (&[b"2001:db8::1:443"], "2001:db8::1:443"),
            (&[b"::ffff:192.0.2.1"], "192.0.2.1"),
            (&[b"[::ffff:192.0.2.1]:80"], "192.0.2.1"),
            (&[b"198.51.100.1, 192.0.2.1"], "192.0.2.1"),
            (&[b"198.51.100.1,192.0.2.1:1,10.9.9.9:2,[fd00::1]:3"], "192.0.2.1"),
            (&[b"198.51.100.1", b"192.0.2.1", b"10.0.0.2"], "192.0.2.1"),
            (&[b"192.0.2.1, 10.0.0.3", b"10.0.0.2"], "192.0.2.1"),
            // Empty elements of a list mean nothing.
            (&[b"192.0.2.1, , ,", b"", b" , "], "192.0.2.1"),
            // What a client puts before the proxy's own entry is not looked at.
            (&[b"\xff\xfe, 192.0.2.1"], "192.0.2.1"),
            (&["unbekannt-ü, 192.0.2.1".as_bytes()], "192.0.2.1"),
            (&[b"\xff", b"192.0.2.1"], "192.0.2.1"),
            (&[b"unknown, 192.0.2.1:80, 10.0.0.2"], "192.0.2.1"),
            // Everyone is a proxy: the one that is furthest away.
            (&[b"10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ] {
            assert_eq!(client(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn what_is_left_of_an_entry_that_is_no_address_is_not_believed() {
        for entry in [
            "unknown",
            "_hidden",
            "192.0.2",
            "192.0.2.256",
            "192.0.2.1:",
            "192.0.2.1:65536",
            "192.0.2.1:+80",
            "192.0.2.1:80:80",
            "192.0.2.1 192.0.2.2",
            "[192.0.2.1]",
            "[2001:db8::1",
            "2001:db8::1]",
            "[2001:db8::1]80",
            "[2001:db8::1]:",
            "[2001:db8::1]:x",
            "[[2001:db8::1]]",
            "fe80::1%eth0",
            "\"192.0.2.1\"",
            "for=192.0.2.1",
            "\u{e9}192.0.2.1",
        ] {
            assert_eq!(client(&[entry.as_bytes()]), PEER, "{entry}");
            let behind = format!("198.51.100.1, {entry}, 10.0.0.2");
            assert_eq!(client(&[behind.as_bytes()]), "10.0.0.2", "{entry}");
        }
        assert_eq!(client(&[b"198.51.100.1, \xff192.0.2.1, 10.0.0.2"]), "10.0.0.2");
        assert_eq!(client(&[]), PEER);
    }

    #[test]
    fn an_entry_ends_at_its_comma_and_nowhere_else() {
        let spaced = |spaces: usize, before: &str| format!("{before}{}192.0.2.1", " ".repeat(spaces));
        let longest = HOP_BYTES_MAX - "192.0.2.1".len();
        assert_eq!(client(&[spaced(longest, "").as_bytes()]), "192.0.2.1");
        assert_eq!(client(&[spaced(longest, "x,").as_bytes()]), "192.0.2.1");
        assert_eq!(client(&[spaced(longest + 1, "x,").as_bytes()]), PEER);
        // The end of a long entry may look like an address; it is not one.
        for spaces in [longest - 1, longest, longest + 1, 5000] {
            assert_eq!(client(&[spaced(spaces, "x").as_bytes()]), PEER, "{spaces}");
        }
    }

    #[test]
    fn a_peer_that_is_no_proxy_is_the_client_whatever_it_claims() {
        let peer = Client::new("192.0.2.7".parse().unwrap());
        assert_eq!(&*behind(&peer, &headers(&[b"198.51.100.1"]), &proxies()).text, "192.0.2.7");
    }

    #[test]
    fn of_a_peer_that_claims_another_client_and_is_no_proxy_is_told_once_an_hour() {
        let said = UntrustedForwarders::default();
        let (peer, other): (IpAddr, IpAddr) = ("192.0.2.7".parse().unwrap(), "192.0.2.8".parse().unwrap());
        assert!(said.is_due(peer, 5) && !said.is_due(peer, 5));
        assert!(said.is_due(other, 6), "another one is told of");
        assert!(!said.is_due(peer, 4 + SAY_EVERY_MS) && said.is_due(peer, 5 + SAY_EVERY_MS));
        assert!(!said.is_due(peer, 0), "a clock that was set back is no reason");
    }

    #[test]
    fn a_crowd_that_claims_other_clients_takes_neither_memory_nor_the_log() {
        let said = UntrustedForwarders::default();
        let peer = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(number));
        let told = (0..100_000).filter(|number| said.is_due(peer(*number), 1)).count();
        assert_eq!((told, lock(&said.0).len()), (PEERS_MAX, PEERS_MAX));
        // An hour later there is room again.
        assert!(said.is_due(peer(100_000), 1 + SAY_EVERY_MS));
        assert_eq!(lock(&said.0).len(), 1);
    }

    #[test]
    fn a_header_of_20000_proxies_costs_32_steps() {
        let asked = Cell::new(0);
        let count = |line: &[u8]| {
            asked.set(0);
            let is_proxy = |_| {
                asked.set(asked.get() + 1);
                true
            };
            let client = forwarded_for(PEER.parse().unwrap(), std::iter::once(line), is_proxy);
            (asked.get(), client.to_string())
        };
        let proxies = ["::1"; 20_000].join(",");
        assert_eq!(count(proxies.as_bytes()), (HOPS_MAX, "::1".to_owned()));
        assert_eq!(count(" ".repeat(60_000).as_bytes()), (0, PEER.to_owned()));
        // Empty entries are steps too.
        assert_eq!(count(format!("192.0.2.1{}", ",".repeat(HOPS_MAX - 1)).as_bytes()).0, 1);
        assert_eq!(count(format!("192.0.2.1{}", ",".repeat(HOPS_MAX)).as_bytes()), (0, PEER.to_owned()));
    }

    #[test]
    fn the_bytes_that_are_looked_at_are_bounded() {
        let line = "x".repeat(60_000);
        let mut hops = Hops(Some(line.as_bytes()));
        assert_eq!(hops.next().map(<[u8]>::len), Some(HOP_BYTES_MAX + 1));
        assert_eq!(hops.next(), None);
    }

    #[test]
    fn a_request_is_local_only_if_no_proxy_has_passed_it_on() {
        let loopback: IpAddr = "127.0.0.1".parse().unwrap();
        let none = HeaderMap::new();
        assert!(is_local(loopback, &none, &[]));
        assert!(is_local("::1".parse().unwrap(), &none, &[]));
        assert!(is_local("::ffff:127.0.0.1".parse().unwrap(), &none, &[]));
        assert!(!is_local("10.0.0.1".parse().unwrap(), &none, &[]));
        assert!(!is_local(loopback, &none, &["127.0.0.0/8".parse().unwrap()]));
        for name in FORWARDED {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(""));
            assert!(!is_local(loopback, &headers, &[]), "{name}");
        }
    }
}
