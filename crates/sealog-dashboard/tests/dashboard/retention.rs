//! Test chains whose oldest events were dropped.

use sealog_control::Role;
use sealog_core::id::{ChainId, Mode};
use sealog_testing::wait;

use crate::harness::*;

#[test]
fn pages_of_a_test_chain_begin_at_its_first_kept_event_and_an_export_over_dropped_ones_says_so() {
    // Rows go one by one there, so that a few events are enough; the last one stays.
    let stage = Stage::on_postgres();
    stage.tenant(1);
    stage.member(1, 1, Role::PrivacyOfficer);
    let chain = ChainId { mode: Mode::Test, ..live(1) };
    let test = |path: String| path.replace("/live/", "/test/");
    for n in 0..5 {
        stage.append(chain, &format!("{{\"action\":\"user.login\",\"actor_id\":\"usr_{n}\"}}"));
    }
    stage.append(live(1), "{\"action\":\"user.login\"}");
    let mut browser = stage.signed_in(1);
    let exports = test(exports_path(1));
    assert_eq!(browser.post(&format!("{exports}/create"), &[("format", "csv")]).status, 303);
    let page = browser.get(&exports);
    let export = page.text().split("/download\"").next().unwrap().rsplit('"').next().unwrap().to_owned();
    assert_eq!(browser.get(&format!("{export}/download")).status, 200);
    while wait(stage.store.drop_test_events(u64::MAX >> 8)).unwrap().more {}
    let page = browser.get(&test(events_path(1)));
    page.shows("usr_4");
    assert!(!page.has("usr_3") && !page.has("class=\"gap\""), "what was dropped is not missing");
    let page = browser.get(&test(verify_path(1)));
    page.shows("The chain has #5 to #5.").shows("#5 to #5: not fully checked");
    let run = browser.post(&format!("{}/start", test(verify_path(1))), &[("range", "all")]);
    stage.work();
    browser.get(&run.location().unwrap()).shows("1 of 1 events are valid");
    let gone = browser.get(&format!("{export}/download"));
    assert_eq!(gone.status, 404);
    gone.shows("its test events up to #4 were deleted");
    // The list says so before anybody tries, and keeps what is known of the file.
    let page = browser.get(&exports);
    page.shows("Test events up to #4 were deleted").shows("5 rows").shows("manifest.json");
    assert!(!page.has("/download\""));
    assert_eq!(browser.post(&format!("{exports}/create"), &[("format", "csv")]).status, 303);
    let page = browser.get(&exports);
    let export = page.text().split("/download\"").next().unwrap().rsplit('"').next().unwrap().to_owned();
    assert_eq!(browser.get(&format!("{export}/download")).status, 200);
    // Nothing of this is about live events.
    browser.get(&verify_path(1)).shows("The chain has #1 to #1.");
}
