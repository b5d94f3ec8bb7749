//! 2.2 What the service finds out by itself: `country` and `city`.

use std::path::PathBuf;
use std::sync::Arc;

use sealog_service::ingest::geo::{Geo, Looked};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::*;
use sealog_testing::mmdb;

const BERLIN: &str = "203.0.113.7";

fn place(country: &str, city: &str) -> Value {
    json!({"country": {"iso_code": country}, "city": {"names": {"de": "?", "en": city}}})
}

/// A service behind a proxy on this machine, and the file that it looks addresses up in.
struct Located {
    service: Service,
    geo: Arc<Geo>,
    file: PathBuf,
    _dir: tempfile::TempDir,
}

impl Located {
    fn with(networks: &[(&str, Value)]) -> Located {
        Located::of(&mmdb::bytes(6, networks), |_| {})
    }

    fn of(database: &[u8], change: impl FnOnce(&mut Setup)) -> Located {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("city.mmdb");
        std::fs::write(&file, database).unwrap();
        let geo = Arc::new(Geo::open(&file).unwrap());
        let service = Service::with(|setup| {
            setup.config.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
            setup.service.geo = Some(Arc::clone(&geo));
            // Most tests look at the file themselves.
            setup.service.intervals.geo_every = std::time::Duration::from_secs(3600);
            change(setup);
        });
        Located { service, geo, file, _dir: dir }
    }

    /// An event that the proxy says comes from this address.
    fn event(&self, address: &str, body: &str) -> Value {
        let key = &self.service.live;
        let headers = [("Authorization", bearer(key)), ("X-Forwarded-For", address.to_owned())];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let log_id = self.service.request("POST", "/v1/events", &headers, body.as_bytes()).accepted();
        self.service.read(key, &log_id)
    }

    fn place(&self, address: &str) -> (Value, Value) {
        let event = self.event(address, LOGIN);
        assert_eq!(event["ip_address"], address);
        (event["country"].clone(), event["city"].clone())
    }
}

fn known(country: &str, city: &str) -> (Value, Value) {
    (json!(country), json!(city))
}

const UNKNOWN: (Value, Value) = (Value::Null, Value::Null);

#[test]
fn country_and_city_are_those_of_the_smallest_network_around_the_address() {
    let located = Located::with(&[
        ("203.0.113.0/24", place("DE", "Berlin")),
        ("203.0.113.128/25", place("FR", "Lyon")),
        ("203.0.113.255/32", place("IT", "Roma")),
        ("2001:db8::/32", place("JP", "Tōkyō")),
    ]);
    assert_eq!(located.place("203.0.113.127"), known("DE", "Berlin"));
    assert_eq!(located.place("203.0.113.128"), known("FR", "Lyon"));
    assert_eq!(located.place("203.0.113.255"), known("IT", "Roma"));
    assert_eq!(located.place("2001:db8:ffff::1"), known("JP", "Tōkyō"));
}

#[test]
fn what_cannot_be_resolved_is_absent() {
    let located = Located::with(&[("203.0.113.0/24", place("DE", "Berlin"))]);
    for address in ["203.0.112.255", "203.0.114.0", "2001:db8::1", "127.0.0.1", "10.1.2.3", "::1", "fd00::1"]
    {
        assert_eq!(located.place(address), UNKNOWN, "{address}");
    }
    let fields = located.event("10.1.2.3", LOGIN);
    assert!(fields.get("country").is_none() && fields.get("city").is_none(), "{fields}");
}

#[test]
fn each_field_stands_for_itself_and_one_that_is_not_as_expected_is_absent() {
    let city = json!({"names": {"en": "Berlin"}});
    let long = "x".repeat(256);
    let cases = [
        (json!({"country": {"iso_code": "DE"}}), (json!("DE"), json!(null))),
        (json!({"city": city}), (json!(null), json!("Berlin"))),
        // Where a network is registered is not where its user is.
        (json!({"registered_country": {"iso_code": "DE"}, "city": city}), (json!(null), json!("Berlin"))),
        (json!({"country": {"iso_code": 49}, "city": city}), (json!(null), json!("Berlin"))),
        (json!({"country": "DE", "city": city}), (json!(null), json!("Berlin"))),
        (json!({"country": {"iso_code": "DEU"}}), UNKNOWN),
        (json!({"country": {"iso_code": "de"}}), UNKNOWN),
        (json!({"country": {"iso_code": ""}}), UNKNOWN),
        (
            json!({"country": {"iso_code": "DE"}, "city": {"names": {"de": "Köln"}}}),
            (json!("DE"), json!(null)),
        ),
        (json!({"country": {"iso_code": "DE"}, "city": {"names": {"en": ""}}}), (json!("DE"), json!(null))),
        (json!({"country": {"iso_code": "DE"}, "city": {"names": {"en": long}}}), (json!("DE"), json!(null))),
        (json!({"city": {"names": {"en": long[1..]}}}), (json!(null), json!(long[1..]))),
        (json!("DE"), UNKNOWN),
        (json!({}), UNKNOWN),
    ];
    let networks: Vec<(String, Value)> = cases
        .iter()
        .enumerate()
        .map(|(n, (record, _))| (format!("203.0.113.{n}/32"), record.clone()))
        .collect();
    let networks: Vec<(&str, Value)> =
        networks.iter().map(|(network, record)| (network.as_str(), record.clone())).collect();
    let located = Located::with(&networks);
    for (n, (record, expected)) in cases.iter().enumerate() {
        assert_eq!(located.place(&format!("203.0.113.{n}")), *expected, "{record}");
    }
}

#[test]
fn country_and_city_cannot_be_supplied_by_clients() {
    let located = Located::with(&[("203.0.113.0/24", place("DE", "Berlin"))]);
    let body = r#"{"action":"user.login","country":"US","city":"x","metadata":{"country":"US","city":"x"}}"#;
    let event = located.event(BERLIN, body);
    assert_eq!((&event["country"], &event["city"]), (&json!("DE"), &json!("Berlin")));
    assert_eq!(event["metadata"], json!({"country": "US", "city": "x"}));
    let event = located.event("10.1.2.3", body);
    assert_eq!((event.get("country"), event.get("city")), (None, None));
}

#[test]
fn every_event_of_a_batch_has_the_place_of_the_request() {
    let located = Located::with(&[("203.0.113.0/24", place("DE", "Berlin"))]);
    let service = &located.service;
    let headers = [("Authorization", bearer(&service.live)), ("X-Forwarded-For", BERLIN.to_owned())];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let answer = service.request("POST", "/v1/events/batch", &headers, logins(3).as_bytes());
    assert_eq!(answer.status, 202);
    assert_eq!(service.listed(&service.live, "", "country"), ["DE"; 3]);
    assert_eq!(service.listed(&service.live, "", "city"), ["Berlin"; 3]);
}

#[test]
fn the_forwarded_address_decides_behind_a_trusted_proxy_and_nowhere_else() {
    let networks = [("203.0.113.0/24", place("DE", "Berlin")), ("127.0.0.1/32", place("ZZ", "Here"))];
    let located = Located::with(&networks);
    assert_eq!(located.place(BERLIN), known("DE", "Berlin"));
    // What stands left of the address that the proxy saw is a claim.
    let event = located.event(&format!("198.51.100.1, {BERLIN}"), LOGIN);
    assert_eq!(event["country"], "DE");

    let located = Located::of(&mmdb::bytes(6, &networks), |setup| setup.config.trusted_proxies.clear());
    let event = located.event(BERLIN, LOGIN);
    assert_eq!((&event["ip_address"], &event["country"]), (&json!("127.0.0.1"), &json!("ZZ")));
}

#[test]
fn an_ipv4_address_in_the_form_of_ipv6_is_looked_up_as_ipv4() {
    let located = Located::with(&[("203.0.113.0/24", place("DE", "Berlin"))]);
    let event = located.event(&format!("::ffff:{BERLIN}"), LOGIN);
    assert_eq!((&event["ip_address"], &event["country"]), (&json!(BERLIN), &json!("DE")));
}

#[test]
fn a_database_of_ipv4_alone_knows_no_ipv6_address() {
    let database = mmdb::bytes(4, &[("203.0.113.0/24", place("DE", "Berlin"))]);
    let located = Located::of(&database, |_| {});
    assert_eq!(located.place(BERLIN), known("DE", "Berlin"));
    assert_eq!(located.place("2001:db8::1"), UNKNOWN);
}

#[test]
fn without_a_database_events_have_no_place() {
    let service = Service::start();
    let event = service.stored(&service.live, LOGIN);
    assert_eq!((event.get("country"), event.get("city")), (None, None));
}

#[test]
fn country_and_city_are_outside_the_hash() {
    let located = Located::with(&[("203.0.113.0/24", place("DE", "Berlin"))]);
    let event = located.event(BERLIN, LOGIN);
    assert_eq!(event["country"], "DE");
    let input = format!(
        r#"{ZEROS}{{"log_id":"{}","tenant_id":"{}","action":"user.login","actor_id":null,"resource":null,"metadata":null}}{NOON_MS}"#,
        text(&event["log_id"]),
        located.service.tenant_id
    );
    assert_eq!(event["hash"], hex::encode(Sha256::digest(input)));
    assert_eq!(located.service.count(&located.service.live), 1);
}

// The file.

#[test]
fn a_file_that_is_missing_or_broken_at_the_start_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("city.mmdb");
    let error = Geo::open(&file).unwrap_err();
    assert!(error.contains("city.mmdb") && error.contains("No such file"), "{error}");
    let whole = mmdb::bytes(6, &[("203.0.113.0/24", place("DE", "Berlin"))]);
    for broken in [&b""[..], b"not a database", &whole[..whole.len() / 2], &whole[1..]] {
        std::fs::write(&file, broken).unwrap();
        let error = Geo::open(&file).unwrap_err();
        assert!(error.contains("city.mmdb: it is not a complete MMDB file"), "{error}");
    }
    std::fs::write(&file, whole).unwrap();
    Geo::open(&file).unwrap();
}

#[test]
fn a_replaced_file_takes_effect_without_a_restart() {
    let database = mmdb::bytes(6, &[("203.0.113.0/24", place("DE", "Berlin"))]);
    let located = Located::of(&database, |setup| {
        setup.service.intervals.geo_every = std::time::Duration::from_millis(10);
    });
    assert_eq!(located.place(BERLIN), known("DE", "Berlin"));
    mmdb::replace(&located.file, &mmdb::bytes(6, &[("203.0.113.0/24", place("FR", "Lyon"))]));
    eventually(|| located.place(BERLIN) == known("FR", "Lyon"));
}

#[test]
fn a_file_that_is_rewritten_in_place_takes_effect_when_it_is_at_rest() {
    let located = Located::with(&[("203.0.113.0/24", place("DE", "Berlin"))]);
    assert_eq!(located.geo.look(), Looked::Same);
    // Of the same length.
    let new = mmdb::bytes(6, &[("203.0.113.0/24", place("FR", "Nantes"))]);
    assert_eq!(new.len(), std::fs::read(&located.file).unwrap().len());
    std::fs::write(&located.file, &new[..new.len() / 2]).unwrap();
    assert_eq!(located.geo.look(), Looked::Settling);
    std::fs::write(&located.file, &new).unwrap();
    assert_eq!(located.geo.look(), Looked::Settling);
    assert_eq!(located.place(BERLIN), known("DE", "Berlin"));
    assert_eq!(located.geo.look(), Looked::Taken { built_at_s: NOON_MS / 1000 });
    assert_eq!(located.place(BERLIN), known("FR", "Nantes"));
    assert_eq!(located.geo.look(), Looked::Same);
}

#[test]
fn a_replacement_that_cannot_be_used_is_refused_once_and_leaves_the_old_database_in_use() {
    let networks: Vec<(String, Value)> =
        (0..200).map(|n| (format!("203.0.113.{n}/32"), place("DE", "Berlin"))).collect();
    let networks: Vec<(&str, Value)> =
        networks.iter().map(|(network, v)| (network.as_str(), v.clone())).collect();
    let located = Located::with(&networks);
    let old = std::fs::read(&located.file).unwrap();
    let new = mmdb::bytes(6, &[("203.0.113.0/24", place("FR", "Lyon"))]);
    // The beginning of the new one, then what was in its place before: the end, where a database says what it
    // is, is whole.
    let torn = [&new[..new.len() / 2], &old[new.len() / 2..]].concat();
    let broken = [Some(&b""[..]), Some(&old[..old.len() / 2]), Some(&torn), Some(b"x"), None];
    for broken in broken {
        match broken {
            // In place, so that a map of the file would have lost its end.
            Some(bytes) => std::fs::write(&located.file, bytes).unwrap(),
            None => std::fs::remove_file(&located.file).unwrap(),
        }
        assert_eq!(located.place(BERLIN), known("DE", "Berlin"));
        assert_eq!(located.geo.look(), Looked::Settling);
        assert!(matches!(located.geo.look(), Looked::Refused { .. }));
        assert_eq!(located.geo.look(), Looked::RefusedBefore);
        assert_eq!(located.geo.look(), Looked::RefusedBefore);
        assert_eq!(located.place(BERLIN), known("DE", "Berlin"));
    }
    mmdb::replace(&located.file, &new);
    assert_eq!(located.geo.look(), Looked::Settling);
    assert!(matches!(located.geo.look(), Looked::Taken { .. }));
    assert_eq!(located.place(BERLIN), known("FR", "Lyon"));
}
