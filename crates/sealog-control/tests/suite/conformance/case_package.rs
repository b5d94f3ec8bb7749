//! Packages and letters of cases.

use sealog_control::*;

use super::case::{furnish_case, write};
use super::case_search::{case_in, done_search, found, search_job};
use super::common::*;
use sealog_store::StoreError;
use sealog_testing::*;

const BUILDING: &[CaseState] = &[CaseState::Approved];

pub fn new_package(n: u8, case: &Case) -> NewCasePackage {
    NewCasePackage {
        id: PackageId(id(n)),
        tenant_id: case.tenant_id,
        case_id: case.id,
        person_id: person_id(1),
        created_at_ms: MORNING_MS,
        expires_at_ms: MORNING_MS + u64::from(n),
    }
}

pub fn built(at_ms: u64) -> PackageBuilt {
    PackageBuilt { bytes: 5, sha256: digest(1), manifest: "{}".into(), entries: "[]".into(), at_ms }
}

fn create(control: &Control, n: u8, case: &Case) -> PackageCreated {
    let created = control.create_package(new_package(n, case), BUILDING, search_job(n, "p"), 9, vec![]);
    wait(created).unwrap()
}

/// A case that is approved, with nothing left to decide.
fn approved(control: &Control) -> Case {
    furnish_case(control);
    let case = case_in(control, 1, CaseState::Approved);
    done_search(control, 1, &case, vec![]);
    case
}

pub fn a_package_waits_for_identity_approval_and_decisions(control: &Control) {
    furnish_case(control);
    let case = case_in(control, 1, CaseState::Review);
    assert_eq!(create(control, 11, &case), PackageCreated::Locked(CaseState::Review));
    let save = |case: &Case, change: &dyn Fn(&mut Case)| {
        let mut case = case.clone();
        change(&mut case);
        match wait(control.save_case(case, CaseWrite { records: vec![], ..write(2) })).unwrap() {
            CaseSaved::Done(case) => *case,
            other => panic!("{other:?}"),
        }
    };
    let case = save(&case, &|case| (case.state, case.identity) = (CaseState::Approved, None));
    assert_eq!(create(control, 11, &case), PackageCreated::NotIdentified);
    let check = super::case::new_case(1, 1).identity;
    let case = save(&case, &|case| case.identity = check);
    assert_eq!(create(control, 11, &case), PackageCreated::Undecided(None));
    done_search(control, 1, &case, vec![found(1, 1)]);
    assert_eq!(create(control, 11, &case), PackageCreated::Undecided(Some(1)));
    done_search(control, 2, &case, vec![]);
    let PackageCreated::Done(package) = create(control, 11, &case) else { panic!("nothing is in the way") };
    assert_eq!((package.search_id, package.events), (SearchId(id(2)), 0));
    assert_eq!(wait(control.case_package(package.new.id)).unwrap(), Some(*package));
    let created = control.create_package(new_package(12, &case), BUILDING, search_job(12, "p"), 1, vec![]);
    assert_eq!(wait(created).unwrap(), PackageCreated::TooMany);
    let foreign = NewCasePackage { tenant_id: tenant_id(2), ..new_package(13, &case) };
    let created = control.create_package(foreign, BUILDING, search_job(13, "p"), 9, vec![]);
    assert_eq!(wait(created).unwrap(), PackageCreated::Missing);
}

pub fn the_first_attempt_that_is_finished_is_the_package_and_the_others_are_removed(control: &Control) {
    let case = approved(control);
    assert!(matches!(create(control, 11, &case), PackageCreated::Done(_)));
    let id = PackageId(id(11));
    let add = |attempt, piece, content: &[u8]| {
        wait(control.add_package_piece(id, attempt, piece, content.to_vec())).unwrap()
    };
    assert!(add(7, 0, b"abc") && add(7, 1, b"de") && add(8, 0, b"other"));
    assert!(wait(control.finish_package(id, 7, built(9))).unwrap());
    assert!(!wait(control.finish_package(id, 8, built(10))).unwrap(), "the second one");
    assert!(!add(7, 2, b"late"), "it is finished");
    assert!(!wait(control.abandon_package(id, 9)).unwrap());
    assert_eq!(wait(control.remove_pieces(9)).unwrap(), 1);
    let piece = |attempt, piece| wait(control.package_piece(id, attempt, piece)).unwrap();
    assert_eq!(
        (piece(7, 0), piece(7, 1), piece(7, 2), piece(8, 0)),
        (Some(b"abc".to_vec()), Some(b"de".to_vec()), None, None)
    );
    let kept = wait(control.case_packages(tenant_id(1), case.id, 9)).unwrap();
    assert_eq!(kept[0].built, Some((7, built(9))));
    assert_eq!(wait(control.case_packages(tenant_id(2), case.id, 9)).unwrap(), []);
}

pub fn what_has_expired_is_dropped_in_steps_and_its_record_stays(control: &Control) {
    let case = approved(control);
    for n in [11, 12, 13] {
        assert!(matches!(create(control, n, &case), PackageCreated::Done(_)));
        for piece in 0..3 {
            assert!(wait(control.add_package_piece(PackageId(id(n)), 1, piece, vec![n; 10])).unwrap());
        }
        assert!(wait(control.finish_package(PackageId(id(n)), 1, built(1))).unwrap());
    }
    let expired = |at_ms| -> Vec<PackageId> {
        wait(control.expired_packages(MORNING_MS + at_ms, 9))
            .unwrap()
            .iter()
            .map(|package| package.new.id)
            .collect()
    };
    assert_eq!(expired(10), []);
    assert_eq!(expired(12), [PackageId(id(11)), PackageId(id(12))]);
    let before = wait(control.pending_records(tenant_id(1), 100)).unwrap().len();
    assert!(wait(control.drop_package(PackageId(id(11)), 20, vec![record(90)])).unwrap());
    assert!(!wait(control.drop_package(PackageId(id(11)), 21, vec![record(91)])).unwrap(), "it is dropped");
    assert_eq!(wait(control.pending_records(tenant_id(1), 100)).unwrap().len(), before + 1);
    assert_eq!(expired(12), [PackageId(id(12))]);
    assert_eq!([2, 2, 2].map(|most| wait(control.remove_pieces(most)).unwrap()), [2, 1, 0]);
    let package = wait(control.case_package(PackageId(id(11)))).unwrap().unwrap();
    assert_eq!((package.dropped_at_ms, package.built), (Some(20), Some((1, built(1)))));
    assert_eq!(wait(control.package_piece(PackageId(id(12)), 1, 2)).unwrap(), Some(vec![12; 10]));
    // One that is given up takes no more.
    assert!(matches!(create(control, 14, &case), PackageCreated::Done(_)));
    assert!(wait(control.abandon_package(PackageId(id(14)), 5)).unwrap());
    assert!(!wait(control.add_package_piece(PackageId(id(14)), 1, 0, vec![1])).unwrap());
    assert!(!wait(control.finish_package(PackageId(id(14)), 1, built(1))).unwrap());
}

pub fn a_package_takes_of_the_room_of_its_tenant_until_it_expires(control: &Control) {
    let case = approved(control);
    assert!(matches!(create(control, 11, &case), PackageCreated::Done(_)));
    let opened = |n, tenant| {
        let case = super::case::new_case(n, tenant);
        wait(control.create_case(case, CaseWrite { records: vec![], ..write(n) })).map(drop)
    };
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    control.limit_tenant_bytes(Some(4 << 20));
    assert_eq!(opened(14, 1), Ok(()), "a search and a package that is not built leave room");
    let large = PackageBuilt { bytes: 4 << 20, ..built(MORNING_MS) };
    assert!(wait(control.finish_package(PackageId(id(11)), 1, large)).unwrap());
    assert_eq!(opened(15, 1), Err(StoreError::TenantFull { mb: 4 }));
    assert_eq!(opened(15, 2), Ok(()), "another tenant has room of its own");
    assert!(wait(control.drop_package(PackageId(id(11)), 20, vec![])).unwrap());
    assert_eq!(opened(16, 1), Ok(()));
}

pub fn a_letter_is_kept_over_the_revision_that_was_seen(control: &Control) {
    furnish_case(control);
    let case = case_in(control, 1, CaseState::Review);
    let letter = |body: &str, revision| CaseLetter {
        case_id: case.id,
        kind: LetterKind::Refusal,
        body: body.into(),
        revision,
        person_id: person_id(1),
        changed_at_ms: MORNING_MS,
    };
    let save = |tenant, letter| wait(control.save_letter(tenant_id(tenant), letter, vec![])).unwrap();
    assert_eq!(save(1, letter("first", 0)), Some(true));
    assert_eq!(save(1, letter("lost", 0)), Some(false), "somebody else was there before");
    assert_eq!(save(1, letter("é\nsecond", 1)), Some(true));
    assert_eq!(save(2, letter("foreign", 2)), None);
    assert_eq!(wait(control.case_letters(tenant_id(1), case.id)).unwrap(), [letter("é\nsecond", 2)]);
    assert_eq!(wait(control.case_letters(tenant_id(2), case.id)).unwrap(), []);
}
