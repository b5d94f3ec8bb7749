//! A disk that is full: keys can still be revoked, and the store can be started. On a small file system,
//! where the machine lets us mount one.

use std::sync::Arc;
use std::time::Duration;

use sealog_control::*;
use sealog_core::catalog::FrameworkSet;
use sealog_core::event::Draft;
use sealog_core::id::{Hash, Mode, ProjectId, TenantId, Uuid};
use sealog_core::plan::Billing;
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::{Store, StoreError};
use sealog_testing::mounted::{Boasting, Mounted};
use sealog_testing::*;

/// A round number of bytes for events that are to fill something.
const EVENT_BYTES: usize = 4 << 10;

fn some_kib(bytes: usize) -> Draft {
    draft(&format!(r#"{{"action":"a.b","metadata":{{"x":"{}"}}}}"#, "y".repeat(bytes)))
}

/// Appends until there is no room; how many events the chain has then.
fn fill(store: &EmbeddedStore) -> u64 {
    loop {
        if let Err(error) = try_append(store, live(), vec![some_kib(EVENT_BYTES)]) {
            assert_eq!(error, StoreError::NoRoom);
            return wait(store.head(live())).unwrap().durable.chain_seq;
        }
    }
}

const TENANT: TenantId = TenantId(Uuid([1; 16]));
const PROJECT: ProjectId = ProjectId(Uuid([1; 16]));

fn create_tenant(control: &Control) {
    let billing = Billing { trial_ends_at_ms: None, billing_active: true };
    let name = "Acme".to_owned();
    let tenant = NewTenant {
        id: TENANT,
        name: name.clone(),
        plan: "top".into(),
        contact_email: None,
        billing,
        created_at_ms: 1,
    };
    wait(control.create_tenant(tenant, vec![])).unwrap();
    let frameworks = FrameworkSet::default();
    let project = NewProject { id: PROJECT, tenant_id: TENANT, name, frameworks, created_at_ms: 1 };
    wait(control.create_project(project, vec![])).unwrap();
}

fn create_key(control: &Control, number: u8) -> Result<(), StoreError> {
    let new = NewKey {
        id: KeyId(Uuid([number; 16])),
        project_id: PROJECT,
        name: "key".into(),
        mode: Mode::Live,
        digest: Hash([number; 32]),
        prefix: "sk_live_ab".into(),
        expires_at_ms: None,
        created_at_ms: 1,
        created_by: None,
    };
    wait(control.create_key(new, vec![])).map(drop)
}

#[test]
fn on_a_disk_that_others_have_filled_keys_are_revoked_and_30_mb_are_enough_to_resume() {
    let Some(mounted) = Mounted::new(160) else { return };
    let dir = mounted.at.join("data");
    let options = Options { tick: Duration::from_millis(20), ..Options::default() };
    let store = EmbeddedStore::open(&dir, &options).unwrap();
    let control = Control::embedded(&store).unwrap();
    create_tenant(&control);
    for number in 0..100 {
        create_key(&control, number).unwrap();
    }
    append(&store, live(), vec![some_kib(200 << 10)]);
    // So much that can be given back later, then the rest.
    mounted.fill("filler", 30_000_000 + options.reserve_bytes);
    mounted.fill("rest", 0);
    let events = fill(&store);
    println!("{events} events, {} bytes free", mounted.free());
    assert_eq!(mounted.free(), 0);
    assert_eq!(store.ready(), Err(StoreError::NoRoom));
    // What is written all the time fails on a full disk, or does not; it must not take what is kept for
    // these.
    for number in 0..100 {
        let _ = wait(control.keys_used(vec![KeyUse::once(KeyId(Uuid([number; 16])), 5)]));
        let revoked = wait(control.revoke_key(KeyId(Uuid([number; 16])), 7, Records::none())).unwrap();
        assert!(revoked.is_some_and(|key| key.revoked_at_ms == Some(7)), "key {number}");
    }
    assert_valid(&store, live(), events);

    // Started on the full disk, it can be read; then it goes on by itself.
    mounted.fill("more", 0);
    drop((store, control));
    mounted.fill("still-more", 0);
    let store = EmbeddedStore::open(&dir, &options).unwrap();
    let control = Control::embedded(&store).unwrap();
    assert_eq!(store.ready(), Err(StoreError::NoRoom));
    assert_valid(&store, live(), events);
    assert!(
        wait(control.access(Hash([3; 32])))
            .unwrap()
            .is_some_and(|access| access.key.revoked_at_ms == Some(7))
    );
    std::fs::remove_file(mounted.at.join("rest")).unwrap();
    println!("{} bytes free again", mounted.free());
    eventually("it goes on", || store.ready() == Ok(()));
    let mut appended = 0;
    while try_append(&store, live(), vec![some_kib(EVENT_BYTES)]).is_ok() {
        appended += 1;
    }
    println!("{appended} events of {EVENT_BYTES} bytes in 30 MB");
    // The other log has its share, and segments of both are prepared ahead.
    assert!(appended * EVENT_BYTES > 4 << 20);
    assert_valid(&store, live(), events + appended as u64);
}

#[test]
fn what_is_large_is_refused_while_there_is_room_for_keys_and_taken_again_when_there_is_more() {
    let Some(mounted) = Mounted::new(160) else { return };
    let options = Options { tick: Duration::from_millis(20), ..Options::default() };
    let store = EmbeddedStore::open(&mounted.at.join("data"), &options).unwrap();
    let control = Control::embedded(&store).unwrap();
    create_tenant(&control);
    let piece = || wait(control.add_package_piece(PackageId(Uuid([9; 16])), 1, 0, vec![0; 256 << 10]));
    assert_eq!(piece(), Ok(false), "there is no such package");
    mounted.fill("rest", 20_000_000);
    assert_eq!(piece(), Err(StoreError::NoRoom));
    let found = SearchPiece { position: "p".into(), looked: 1, found: vec![], values: vec![] };
    let advanced = control.advance_case_search(SearchId(Uuid([9; 16])), JobId(Uuid([9; 16])), found);
    assert_eq!(wait(advanced), Err(StoreError::NoRoom));
    create_key(&control, 1).unwrap();
    assert_eq!(store.ready(), Ok(()));
    std::fs::remove_file(mounted.at.join("rest")).unwrap();
    assert_eq!(piece(), Ok(false));
}

#[test]
fn control_data_is_not_copied_for_a_backup_where_that_would_take_the_room_of_events() {
    let Some(mounted) = Mounted::new(160) else { return };
    let store = EmbeddedStore::open(&mounted.at.join("data"), &Options::default()).unwrap();
    let control = Control::embedded(&store).unwrap();
    create_tenant(&control);
    let copy = mounted.at.join("data/copy.db");
    mounted.fill("filler", 20 << 20);
    let refused = control.copy_to(&copy).unwrap_err().to_string();
    assert!(refused.contains("no room") && !copy.exists(), "{refused}");
    std::fs::remove_file(mounted.at.join("filler")).unwrap();
    control.copy_to(&copy).unwrap();
}

/// Whoever else makes changes on a full disk: what is kept for signing in and revoking stays for that.
#[test]
fn on_a_full_disk_nobody_else_uses_up_the_room_for_signing_in_and_revoking() {
    let Some(mounted) = Mounted::new(160) else { return };
    let store = EmbeddedStore::open(&mounted.at.join("data"), &Options::default()).unwrap();
    let control = Control::embedded(&store).unwrap();
    create_tenant(&control);
    for number in 0..100 {
        create_key(&control, number).unwrap();
    }
    let person = NewPerson {
        id: PersonId(Uuid([1; 16])),
        email: "owner@example.org".into(),
        password_hash: Some("hash".into()),
        verified: true,
        created_at_ms: 1,
    };
    let owner = NewMember {
        tenant_id: TENANT,
        person,
        role: Role::Owner,
        grants: Grants::default(),
        ends_at_ms: None,
        created_at_ms: 1,
    };
    wait(control.add_member(owner, Records::none())).unwrap().unwrap();
    mounted.fill("rest", 0);
    assert_eq!(mounted.free(), 0);
    let others = || {
        for number in 100..150 {
            assert_eq!(create_key(&control, number), Err(StoreError::NoRoom));
            let attempt = control.count_attempt(vec![Hash([number; 32])], 1, 1000);
            assert_eq!(wait(attempt).map(drop), Err(StoreError::NoRoom));
            let view =
                (TENANT, NewRecord { id: Uuid([number; 16]), draft: "x".repeat(4000), created_at_ms: 1 });
            assert_eq!(wait(control.add_records(vec![view], Room::Ordinary)), Err(StoreError::NoRoom));
        }
    };
    others();
    for number in 0..100u8 {
        let session = Session::<Person> {
            token_digest: Hash([number; 32]),
            account_id: PersonId(Uuid([1; 16])),
            needs_code: false,
            created_at_ms: 1,
            expires_at_ms: 1 << 60,
            last_seen_at_ms: u64::from(number),
            idle_ms: 1 << 59,
            address: Some("203.0.113.7".into()),
            user_agent: Some("x".repeat(200)),
        };
        let shown = Shown::Password { hash: "hash".into(), replaces: None };
        assert_eq!(wait(control.begin_session(session, shown, Room::Reserve)), Ok(true), "sign-in {number}");
        let revoked = wait(control.revoke_key(KeyId(Uuid([number; 16])), 7, Records::none())).unwrap();
        assert!(revoked.is_some_and(|key| key.revoked_at_ms == Some(7)), "key {number}");
        // Once what was reserved is given out, it is for nobody else either.
        if number % 20 == 0 {
            others();
        }
    }
    std::fs::remove_file(mounted.at.join("rest")).unwrap();
    create_key(&control, 200).unwrap();
}

/// The same where another program fills the disk between the look at it and the commit.
#[test]
fn the_first_change_after_the_disk_has_filled_unseen_is_made_again_with_what_is_reserved() {
    let Some(mounted) = Mounted::new(160) else { return };
    let options = Options { disk: Arc::new(Boasting), ..Options::default() };
    let store = EmbeddedStore::open(&mounted.at.join("data"), &options).unwrap();
    let control = Control::embedded(&store).unwrap();
    create_tenant(&control);
    for number in 0..100 {
        create_key(&control, number).unwrap();
    }
    mounted.fill("rest", 0);
    assert_eq!(mounted.free(), 0);
    for number in 0..100 {
        let record = NewRecord { id: Uuid([number; 16]), draft: "x".repeat(1000), created_at_ms: 1 };
        let revoked = control.revoke_key(KeyId(Uuid([number; 16])), 7, Records::of(vec![record]));
        let revoked = wait(revoked).unwrap();
        assert!(revoked.is_some_and(|key| key.revoked_at_ms == Some(7)), "key {number}");
        // What was released for these is for nobody else.
        assert_eq!(create_key(&control, 100 + number), Err(StoreError::NoRoom));
    }
    drop(control);
    let control = Control::embedded(&store).unwrap();
    for number in 0..100 {
        let access = wait(control.access(Hash([number; 32]))).unwrap();
        assert!(access.is_some_and(|access| access.key.revoked_at_ms == Some(7)), "key {number}");
    }
    std::fs::remove_file(mounted.at.join("rest")).unwrap();
    create_key(&control, 200).unwrap();
}

/// Issue 23.23. Whoever signs in is counted first, and a right password takes itself out of the count.
#[test]
fn an_attempt_is_refused_as_for_lack_of_room_and_taken_back_with_what_is_reserved() {
    let Some(mounted) = Mounted::new(160) else { return };
    let options = Options { disk: Arc::new(Boasting), ..Options::default() };
    let store = EmbeddedStore::open(&mounted.at.join("data"), &options).unwrap();
    let control = Control::embedded(&store).unwrap();
    let count = |now_ms| wait(control.count_attempt(vec![Hash([1; 32])], now_ms, 1000));
    for _ in 0..3 {
        count(1).unwrap();
    }
    mounted.fill("rest", 0);
    assert_eq!(mounted.free(), 0);
    // Whoever asks counts in memory then.
    assert_eq!(count(2), Err(StoreError::NoRoom));
    assert_eq!(wait(control.take_back_attempt(Hash([1; 32]))), Ok(()));
    std::fs::remove_file(mounted.at.join("rest")).unwrap();
    assert_eq!(count(3).unwrap()[0].attempts, 3);
}
