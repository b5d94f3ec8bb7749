//! Signing in, and ending what others may do, while the disk is full. On a small file system, where the
//! machine lets us mount one.

use std::sync::Arc;

use sealog_control::*;
use sealog_core::id::{Hash, Mode, Uuid};
use sealog_store::embedded::disk::{Disk, RealDisk};
use sealog_testing::mounted::{Boasting, Mounted};

use crate::harness::*;
use crate::ops_accounts;

const MINUTE_MS: u64 = 60 * 1000;

fn key(stage: &Stage, n: u8) -> ApiKey {
    stage.wait(stage.control.access(Hash([n; 32]))).unwrap().expect("the key").key
}

fn create_key(stage: &Stage, n: u8) -> Result<(), sealog_store::StoreError> {
    let new = NewKey {
        id: KeyId(Uuid([n; 16])),
        project_id: project_id(1),
        name: "key".into(),
        mode: Mode::Live,
        digest: Hash([n; 32]),
        prefix: "at_live_ab".into(),
        expires_at_ms: None,
        created_at_ms: stage.now_ms(),
        created_by: None,
    };
    stage.wait(stage.control.create_key(new, vec![])).map(drop)
}

/// Signs in with a browser that nobody knows, and is on a page then.
fn gets_in<'a>(stage: &'a Stage, n: u8, address: &str) -> Browser<'a> {
    let mut browser = stage.browser();
    browser.address = address.parse().unwrap();
    let answer = browser.sign_in(n, PASSWORD);
    assert_eq!(answer.status, 303, "person {n}: {}", answer.text());
    assert!(browser.is_signed_in(), "person {n}");
    browser
}

/// Issue 23.23. Somebody has guessed at each account earlier that day, from elsewhere: such counts stand in
/// the store, and a right password takes itself out of them.
fn all_gets_done(disk: Arc<dyn Disk>) {
    let Some(mounted) = Mounted::new(160) else { return };
    let stage = Stage::on_disk(&mounted.at, disk);
    stage.tenant(1);
    let roles = [(1, Role::Owner), (2, Role::Admin), (3, Role::Developer), (4, Role::Developer)];
    for (n, role) in roles {
        stage.member(n, 1, role);
    }
    ops_accounts::operator(&stage, 1);
    create_key(&stage, 1).unwrap();
    let mut guessing = stage.browser();
    guessing.address = "198.51.100.1".parse().unwrap();
    for n in 1..=3 {
        assert_eq!(guessing.sign_in(n, "a wrong password").status, 422);
    }
    assert_eq!(ops_accounts::sign_in(&mut guessing, 1, "a wrong password").status, 422);
    // Fewer than make SQLite copy its log into the file: the next change makes the log longer.
    let (mut signed_in, mut elsewhere) = (stage.signed_in(1), stage.signed_in(1));
    let mut ended = stage.signed_in(4);
    stage.clock.advance(15 * MINUTE_MS);
    mounted.fill("rest", 0);
    assert_eq!(mounted.free(), 0);

    // A page of somebody who is signed in, before anything has released what is reserved.
    assert!(signed_in.is_signed_in());
    let mut owner = gets_in(&stage, 1, "192.0.2.1");
    gets_in(&stage, 2, "192.0.2.2");
    let mut operator = stage.browser();
    let answer = ops_accounts::sign_in(&mut operator, 1, PASSWORD);
    assert_eq!(answer.status, 303, "{}", answer.text());
    let right = ops_accounts::code(&stage, &[1; 20]);
    let answer = operator.post("/ops/sign-in/code", &[("code", &right)]);
    assert_eq!(answer.status, 303, "{}", answer.text());
    assert!(ops_accounts::is_signed_in(&mut operator));
    // A developer could end nothing, and would take of what is kept for those who can.
    let mut developer = stage.browser();
    developer.address = "192.0.2.3".parse().unwrap();
    let refused = developer.sign_in(3, PASSWORD);
    assert_eq!(refused.status, 500, "{}", refused.text());
    refused.shows("disk is full");
    assert!(!developer.is_signed_in());

    assert!(elsewhere.is_signed_in());
    assert_eq!(owner.post("/app/account/sessions", &[("session", "others")]).status, 303);
    assert!(owner.is_signed_in() && !elsewhere.is_signed_in());
    let organisation = format!("/app/o/{}", tenant_id(1));
    assert_eq!(ended.get(&events_path(1)).status, 200);
    let member = format!("{organisation}/members/{}/end", person_id(4).0);
    let answer = owner.post(&member, &[("end", "now")]);
    assert_eq!(answer.status, 303, "{}", answer.text());
    assert_ne!(ended.get(&events_path(1)).status, 200, "the membership has ended");
    let id = key(&stage, 1).id.0.to_string();
    let answer = owner.post(&format!("{organisation}/keys/revoke"), &[("key", &id), ("name", "key")]);
    assert_eq!(answer.status, 303, "{}", answer.text());
    assert!(key(&stage, 1).revoked_at_ms.is_some());
    // It was full all the time, for everything else.
    assert_eq!(create_key(&stage, 2), Err(sealog_store::StoreError::NoRoom));
    std::fs::remove_file(mounted.at.join("rest")).unwrap();
    gets_in(&stage, 3, "192.0.2.3");
}

#[test]
fn on_a_full_disk_owners_admins_and_operators_sign_in_and_end_what_others_may_do() {
    all_gets_done(Arc::new(RealDisk));
}

#[test]
fn the_same_on_a_disk_that_refuses_although_it_says_that_it_has_room() {
    all_gets_done(Arc::new(Boasting));
}
