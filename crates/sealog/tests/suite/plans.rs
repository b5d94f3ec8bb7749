//! Plans of the settings file, in a server that runs.

use std::path::Path;

use crate::support::*;
use sealog_core::time::{DAY_MS, iso_ms};
use serde_json::{Value, json};

const TOKEN: &str = "0123456789abcdef";
const GOLD: &str = "[plans.gold]\nframeworks = [\"hipaa\"]\nkey_expiry_policy = true\nrequests_per_s = 50\n[plans.top]\nkey_expiry_policy = false\n";
const HIPAA: &str =
    r#"{"action":"hipaa.phi_accessed","metadata":{"patient_id":"p","purpose_of_use":"care"}}"#;

fn serve_with_plans(data: &Path, plans: &str) -> Running {
    let file = data.parent().unwrap().join("sealog.toml");
    std::fs::write(&file, plans).unwrap();
    let mut command = sealog();
    command.env("SEALOG_OPERATOR_TOKEN", TOKEN).env("SEALOG_CONFIG", &file);
    start(serving(command, data))
}

fn operator(server: &Running, method: &str, path: &str, body: &Value) -> (u16, Value) {
    crate::support::operator(server, TOKEN, method, path, body)
}

#[test]
fn a_plan_of_the_file_enforces_the_policy_for_keys_and_one_without_it_does_not() {
    let (_dir, data) = data_dir();
    let server = serve_with_plans(&data, GOLD);
    let (tenant, project) = first_tenant(&server, TOKEN);
    let (status, _) = operator(&server, "PATCH", &format!("/tenants/{tenant}"), &json!({"plan": "gold"}));
    assert_eq!(status, 200);
    let cookie = signed_in_owner(&server, &data);
    let policy = format!("/app/o/{tenant}/settings/key-lifetime");
    assert!(submit(&server, &policy, &cookie, "days=30").starts_with("HTTP/1.1 303"));
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let late = iso_ms(u64::try_from(now_ms).unwrap() + 31 * DAY_MS);
    let key = json!({"name": "k", "mode": "test", "expires_at": late});
    let keys = format!("/projects/{project}/keys");
    let (status, answer) = operator(&server, "POST", &keys, &key);
    assert_eq!((status, answer["error"]["code"].as_str()), (422, Some("validation/invalid_field")));
    // Delivered with the policy, and changed by the file: one member, and no other.
    operator(&server, "PATCH", &format!("/tenants/{tenant}"), &json!({"plan": "top"}));
    assert_eq!(operator(&server, "POST", &keys, &key).0, 201);
    server.stop();
}

#[test]
fn a_tenant_whose_plan_is_gone_is_served_on_and_the_log_says_so_loudly() {
    let (_dir, data) = data_dir();
    let server = serve_with_plans(&data, GOLD);
    let (tenant, project) = first_tenant(&server, TOKEN);
    let key = first_key(&data);
    operator(&server, "PATCH", &format!("/tenants/{tenant}"), &json!({"plan": "gold"}));
    operator(&server, "PATCH", &format!("/projects/{project}"), &json!({"frameworks": ["hipaa"]}));
    let taken = server.send(&key, HIPAA);
    assert_eq!(taken.0, 202, "{}", taken.1);
    server.stop();

    let server = serve_with_plans(&data, "");
    let said = server.says("tenants have a plan that is not in the settings");
    assert_eq!((said["plan"].as_str(), said["tenants"].as_u64()), (Some("gold"), Some(1)));
    assert_eq!(server.post(&key).0, 202);
    assert_eq!(server.send(&key, HIPAA).0, 202, "evidence is not refused for a setting that went missing");
    let (status, _) = operator(&server, "PATCH", &format!("/tenants/{tenant}"), &json!({"plan": "gold"}));
    assert_eq!(status, 422, "nobody can be put on it");
    server.stop();
}

#[test]
fn a_plan_that_is_wrong_is_an_error_at_start() {
    let (_dir, data) = data_dir();
    let file = data.parent().unwrap().join("sealog.toml");
    std::fs::write(&file, "[plans.entry]\nframeworks = [\"soc2\", \"hippa\"]\n").unwrap();
    let mut command = sealog();
    command.env("SEALOG_CONFIG", &file);
    let (code, _, said) = ended(serving(command, &data).output().unwrap());
    assert_eq!(code, Some(2));
    assert!(said.contains("plans.entry.frameworks: \"hippa\" is not a framework"), "{said}");
}
