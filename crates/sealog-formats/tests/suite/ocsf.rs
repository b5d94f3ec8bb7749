//! Events as OCSF against its schema, version 1.5.0: which attributes a class has and demands, which values
//! a number can have, and what each number is called. The tables are the part of the schema that the classes
//! here can reach, without profiles, which add attributes that no event here may have.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sealog_formats::output::{Format, render};
use serde_json::{Map, Value};

use crate::shapes;

/// Attributes of every class; those with `!` are required.
const BASE: &str = "activity_id! activity_name category_name category_uid! class_name class_uid! count duration end_time enrichments message metadata! observables raw_data raw_data_size severity severity_id! start_time status status_code status_detail status_id time! timezone_offset type_name type_uid! unmapped";
const IAM: &str = "actor http_request http_response src_endpoint";

struct Class {
    uid: u64,
    attributes: [&'static str; 2],
    at_least_one: &'static str,
    activities: Names,
}

const CLASSES: [Class; 5] = [
    Class { uid: 0, attributes: ["", ""], at_least_one: "", activities: &[] },
    Class {
        uid: 3001,
        attributes: [IAM, "policies policy user! user_result"],
        at_least_one: "",
        activities: &[
            (1, "Create"),
            (2, "Enable"),
            (3, "Password Change"),
            (4, "Password Reset"),
            (5, "Disable"),
            (6, "Delete"),
            (7, "Attach Policy"),
            (8, "Detach Policy"),
            (9, "Lock"),
            (10, "MFA Factor Enable"),
            (11, "MFA Factor Disable"),
            (12, "Unlock"),
        ],
    },
    Class {
        uid: 3002,
        attributes: [
            IAM,
            "auth_factors auth_protocol auth_protocol_id authentication_token certificate dst_endpoint is_cleartext is_mfa is_new_logon is_remote logon_process logon_type logon_type_id service session user!",
        ],
        at_least_one: "service dst_endpoint",
        activities: &[
            (1, "Logon"),
            (2, "Logoff"),
            (3, "Authentication Ticket"),
            (4, "Service Ticket Request"),
            (5, "Service Ticket Renew"),
            (6, "Preauth"),
        ],
    },
    Class {
        uid: 3005,
        attributes: [IAM, "privileges! resource resources user!"],
        at_least_one: "",
        activities: &[(1, "Assign Privileges"), (2, "Revoke Privileges")],
    },
    Class {
        uid: 6003,
        attributes: ["actor! api! dst_endpoint http_request http_response", "resources src_endpoint!"],
        at_least_one: "",
        activities: &[(1, "Create"), (2, "Read"), (3, "Update"), (4, "Delete")],
    },
];

/// Objects: name, attributes, and those of which at least one must be there.
const OBJECTS: [(&str, &str, &str); 10] = [
    (
        "actor",
        "app_name app_uid authorizations idp invoked_by process session user",
        "process user invoked_by session app_name app_uid",
    ),
    ("api", "group operation! request response service version", ""),
    (
        "location",
        "aerial_height city continent coordinates country desc geodetic_altitude geodetic_vertical_accuracy geohash horizontal_accuracy is_on_premises isp lat long postal_code pressure_altitude provider region",
        "city country postal_code region",
    ),
    (
        "metadata",
        "correlation_uid debug event_code extension extensions labels log_level log_name log_provider log_version logged_time loggers modified_time original_time processed_time product! profiles sequence tags tenant_uid transformation_info_list uid version!",
        "",
    ),
    (
        "network_endpoint",
        "agent_list autonomous_system domain hostname hw_info instance_uid interface_name interface_uid intermediate_ips ip isp isp_org location mac name os owner port proxy_endpoint subnet_uid svc_name type type_id uid vlan_uid vpc_uid zone",
        "ip uid name hostname svc_name instance_uid interface_uid interface_name domain",
    ),
    ("product", "cpe_name feature lang name path uid url_string vendor_name version", "name uid"),
    (
        "resource_details",
        "agent_list created_time criticality data group hostname ip is_backed_up labels modified_time name namespace owner resource_relationship tags type uid uid_alt version",
        "name uid",
    ),
    ("service", "labels name tags uid version", "name uid"),
    (
        "session",
        "count created_time credential_uid expiration_reason expiration_time is_mfa is_remote is_vpn issuer terminal uid uid_alt uuid",
        "",
    ),
    (
        "user",
        "account credential_uid display_name domain email_addr forward_addr full_name groups has_mfa ldap_person name org phone_number risk_level risk_level_id risk_score type type_id uid uid_alt",
        "account name uid",
    ),
];

/// What an attribute holds: an object, or a type. `unmapped` holds anything.
const TYPES: [(&str, &str); 8] = [
    ("actor api location metadata product service session user", "object of its name"),
    ("src_endpoint dst_endpoint", "network_endpoint"),
    ("resources", "list of resource_details"),
    ("privileges", "list of string"),
    ("time", "timestamp"),
    ("ip", "ip"),
    ("unmapped", "anything"),
    ("activity_id category_uid class_uid severity_id status_id type_id type_uid sequence", "integer"),
];

type Names = &'static [(u64, &'static str)];

/// Numbers with a name beside them: both must be the schema's, and 99 has a name of the source.
const ENUMS: [(&str, &str, Names); 3] = [
    (
        "severity_id",
        "severity",
        &[
            (0, "Unknown"),
            (1, "Informational"),
            (2, "Low"),
            (3, "Medium"),
            (4, "High"),
            (5, "Critical"),
            (6, "Fatal"),
        ],
    ),
    ("status_id", "status", &[(0, "Unknown"), (1, "Success"), (2, "Failure")]),
    ("type_id", "type", &[(0, "Unknown"), (1, "User"), (2, "Admin"), (3, "System")]),
];

/// What is wrong with an event, by the tables.
fn faults(event: &Value) -> Vec<String> {
    let Some(class) = CLASSES.iter().find(|class| event["class_uid"] == class.uid) else {
        return vec![format!("no class {}", event["class_uid"])];
    };
    let mut faults = Vec::new();
    let attributes = [BASE, class.attributes[0], class.attributes[1]].join(" ");
    object(class_name(class), event.as_object().unwrap(), &attributes, class.at_least_one, &mut faults);
    named(
        "activity_id",
        "activity_name",
        &[&[(0, "Unknown")], class.activities].concat(),
        event,
        &mut faults,
    );
    let activity = event["activity_id"].as_u64().unwrap_or_default();
    for (name, expected) in [("category_uid", class.uid / 1000), ("type_uid", class.uid * 100 + activity)] {
        if event[name] != expected {
            faults.push(format!("{name} is {}, not {expected}", event[name]));
        }
    }
    faults
}

fn class_name(class: &Class) -> &'static str {
    match class.uid {
        0 => "base_event",
        3001 => "account_change",
        3002 => "authentication",
        3005 => "user_access",
        _ => "api_activity",
    }
}

fn object(kind: &str, members: &Map<String, Value>, has: &str, at_least_one: &str, faults: &mut Vec<String>) {
    let known: BTreeMap<&str, bool> =
        has.split_whitespace().map(|name| (name.trim_end_matches('!'), name.ends_with('!'))).collect();
    for (name, _) in known.iter().filter(|(name, is_required)| **is_required && !members.contains_key(**name))
    {
        faults.push(format!("{kind} without {name}"));
    }
    if !at_least_one.is_empty() && !at_least_one.split(' ').any(|name| members.contains_key(name)) {
        faults.push(format!("{kind} with none of {at_least_one}"));
    }
    let itself = Value::Object(members.clone());
    for (number, name, values) in ENUMS.iter().filter(|(number, ..)| known.contains_key(number)) {
        named(number, name, values, &itself, faults);
    }
    for (name, value) in members {
        match known.contains_key(name.as_str()) {
            true => of_type(name, value, faults),
            false => faults.push(format!("{kind} has no {name}")),
        }
    }
}

fn named(number: &str, name: &str, values: &[(u64, &str)], of: &Value, faults: &mut Vec<String>) {
    let is_right = match (of[number].as_u64(), of[name].as_str()) {
        (None, None) => true,
        (Some(99), Some(own)) => !values.iter().any(|(_, known)| *known == own),
        (Some(number), Some(name)) => values.contains(&(number, name)),
        (Some(number), None) => number == 99 || values.iter().any(|(known, _)| *known == number),
        (None, Some(_)) => false,
    };
    if !is_right {
        faults.push(format!("{number} {} is called {}", of[number], of[name]));
    }
}

fn of_type(name: &str, value: &Value, faults: &mut Vec<String>) {
    let kind = TYPES.iter().find(|(names, _)| names.split(' ').any(|known| known == name));
    let is_right = match kind.map_or("string", |(_, kind)| kind) {
        "integer" => value.is_u64(),
        // Milliseconds of this century.
        "timestamp" => value.as_u64().is_some_and(|ms| (946_684_800_000..4_102_444_800_000).contains(&ms)),
        "ip" => value.as_str().is_some_and(|text| text.parse::<IpAddr>().is_ok()),
        "anything" => value.is_object(),
        "list of string" => value.as_array().is_some_and(|items| items.iter().all(Value::is_string)),
        "string" => value.is_string(),
        kind => {
            let kind = if kind == "object of its name" { name } else { kind };
            let of = kind.strip_prefix("list of ").unwrap_or(kind);
            let (_, has, at_least_one) = OBJECTS.iter().find(|(known, ..)| *known == of).unwrap();
            let items =
                if of == kind { vec![value.clone()] } else { value.as_array().cloned().unwrap_or_default() };
            for item in &items {
                match item.as_object() {
                    Some(members) => object(of, members, has, at_least_one, faults),
                    None => faults.push(format!("{name} is no {of}")),
                }
            }
            !items.is_empty()
        }
    };
    if !is_right {
        faults.push(format!("{name} is {value}"));
    }
}

fn rendered(event: &str) -> Value {
    serde_json::from_str(&render(Format::Ocsf, event).unwrap()).unwrap()
}

#[test]
fn every_event_of_every_action_is_what_the_schema_allows() {
    let mut found: BTreeMap<u64, usize> = BTreeMap::new();
    for event in shapes::events() {
        let ocsf = rendered(&event);
        assert_eq!(faults(&ocsf), Vec::<String>::new(), "{event}\n{ocsf}");
        *found.entry(ocsf["class_uid"].as_u64().unwrap()).or_default() += 1;
    }
    let expected: Vec<u64> = CLASSES.iter().map(|class| class.uid).collect();
    assert_eq!(found.keys().copied().collect::<Vec<u64>>(), expected, "some class has no event: {found:?}");
}

/// The check itself, with what events once were: what is wrong with them is known.
#[test]
fn the_check_finds_what_the_schema_forbids() {
    let base = r#""category_uid":3,"activity_id":1,"activity_name":"Logon","severity_id":1,"severity":"Informational","time":1794657601250,"metadata":{"version":"1.5.0","product":{"name":"Sealog"}}"#;
    let user = r#""user":{"uid":"u"}"#;
    let service = r#""service":{"uid":"p"}"#;
    for (rest, fault) in [
        (format!(r#""type_uid":300201,{user},{service}"#), ""),
        (format!(r#""type_uid":300201,{user}"#), "authentication with none of service dst_endpoint"),
        (format!(r#""type_uid":300201,{service}"#), "authentication without user"),
        (
            format!(r#""type_uid":300201,{user},{service},"api":{{"operation":"x"}}"#),
            "authentication has no api",
        ),
        (
            format!(r#""type_uid":300201,{user},{service},"resources":[{{"uid":"x"}}]"#),
            "authentication has no resources",
        ),
        (format!(r#""type_uid":300199,{user},{service}"#), "type_uid is 300199, not 300201"),
        (
            format!(r#""type_uid":300201,{service},"user":{{"type":"User","type_id":1}}"#),
            "user with none of account name uid",
        ),
        (
            format!(r#""type_uid":300201,{user},{service},"status_id":2,"status":"failed""#),
            "status_id 2 is called \"failed\"",
        ),
        (
            format!(r#""type_uid":300201,{user},{service},"src_endpoint":{{"ip":"no address"}}"#),
            "ip is \"no address\"",
        ),
        (
            format!(
                r#""type_uid":300201,{user},{service},"src_endpoint":{{"location":{{"city":"Boxford"}}}}"#
            ),
            "network_endpoint with none of ip uid name hostname svc_name instance_uid interface_uid interface_name domain",
        ),
    ] {
        let event: Value = serde_json::from_str(&format!(r#"{{"class_uid":3002,{base},{rest}}}"#)).unwrap();
        assert_eq!(faults(&event), Vec::from_iter((!fault.is_empty()).then_some(fault)), "{event}");
    }
}

#[test]
fn the_class_follows_from_category_and_verb_and_from_what_the_event_has() {
    let ip = r#""ip_address":"192.0.2.1""#;
    for (category, action, members, kind) in [
        ("auth", "user.login", r#""actor_id":"u""#, 300_201),
        ("auth", "user.login_failed", r#""actor_id":"u""#, 300_201),
        ("auth", "user.logout", r#""actor_id":"u""#, 300_202),
        ("auth", "user.login", "", 99),
        ("auth", "user.password_changed", r#""actor_id":"u""#, 300_103),
        (
            "auth",
            "user.mfa_disabled",
            r#""actor_id":"admin","resource":"user/4","resource_type":"user""#,
            300_111,
        ),
        // Ended by another person than its holder: whose it was is not known.
        ("auth", "session.revoked", r#""actor_id":"admin""#, 600_399),
        (
            "identity",
            "user.created",
            r#""actor_id":"admin","resource":"user/4","resource_type":"user""#,
            300_101,
        ),
        ("identity", "user.updated", r#""resource":"u-4""#, 300_199),
        // The actor is not the one who was deleted.
        ("identity", "user.deleted", r#""actor_id":"admin""#, 600_304),
        ("identity", "group.created", r#""actor_id":"admin","resource":"g-1""#, 600_301),
        ("access_control", "role.assigned", r#""metadata":{"role":"owner","grantee":"u-4"}"#, 300_501),
        (
            "access_control",
            "permission.revoked",
            r#""metadata":{"permission":"read"},"resource":"user/4","resource_type":"user""#,
            300_502,
        ),
        (
            "access_control",
            "permission.granted",
            r#""actor_id":"admin","metadata":{"grantee":"u-4"}"#,
            600_399,
        ),
        ("access_control", "access.denied", r#""actor_id":"u""#, 600_399),
        ("payment", "payment.failed", r#""session_id":"s-1""#, 600_399),
        ("hipaa", "hipaa.phi_accessed", r#""actor_id":"u""#, 600_302),
        ("configuration", "config.changed", r#""actor_id":"u""#, 600_303),
        ("payment", "payment.failed", "", 99),
    ] {
        let shape =
            [ip, members].iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(",");
        let ocsf = rendered(&shapes::event(action, Some(category), None, &format!("{{{shape}}}")));
        assert_eq!(ocsf["type_uid"], kind, "{action}: {ocsf}");
    }
    let without_address =
        rendered(&shapes::event("payment.failed", Some("payment"), None, r#"{"actor_id":"u"}"#));
    assert_eq!(without_address["class_uid"], 0);
}

#[test]
fn what_a_class_has_no_room_for_is_unmapped_and_nothing_is_lost() {
    let shape = r#"{"actor_id":"","actor_type":"robot","resource":"session/1","resource_type":"session","session_id":"s","country":"GB"}"#;
    let event = shapes::event("user.login", Some("auth"), Some("info"), shape);
    let ocsf = rendered(&event);
    assert_eq!(ocsf["class_uid"], 0);
    for name in ["actor_id", "actor_type", "resource", "resource_type", "session_id", "country"] {
        let sent: Value = serde_json::from_str(&event).unwrap();
        assert_eq!(ocsf["unmapped"][name], sent[name], "{name}: {ocsf}");
    }
    assert_eq!(ocsf["metadata"]["event_code"], "user.login");
    // What has a place is there once.
    let login =
        rendered(&shapes::event("user.login", Some("auth"), None, r#"{"actor_id":"u-17","session_id":"s"}"#));
    assert_eq!(login["service"]["uid"], login["unmapped"]["project_id"]);
    assert!(
        login["unmapped"].get("actor_id").is_none() && login["unmapped"].get("action").is_none(),
        "{login}"
    );
}
