//! Monitor tokens, and what they give access to.

use sealog_control::monitor_token::WORKING_MAX;
use sealog_control::*;
use sealog_core::id::{ChainId, Mode, ProjectId};

use super::common::*;
use sealog_testing::*;

pub fn new_monitor_token(n: u8, project: u8) -> NewMonitorToken {
    NewMonitorToken {
        id: MonitorTokenId(id(n)),
        tenant_id: tenant_id(1),
        project_id: project_id(project),
        name: format!("Token {n}"),
        digest: digest(n),
        prefix: format!("sm_live_{n:04}"),
        expires_at_ms: Some(MORNING_MS + 1000),
        created_at_ms: MORNING_MS,
        created_by: Some(person_id(1)),
    }
}

fn create(control: &Control, new: NewMonitorToken) -> Option<MonitorTokenCreated> {
    wait(control.create_monitor_token(new, vec![])).unwrap()
}

fn made(control: &Control, new: NewMonitorToken) -> MonitorToken {
    match create(control, new) {
        Some(MonitorTokenCreated::Done(token)) => token,
        other => panic!("{other:?}"),
    }
}

fn access(control: &Control, n: u8) -> Option<MonitorAccess> {
    wait(control.monitor_access(digest(n))).unwrap()
}

pub fn a_token_is_found_by_its_digest_and_never_as_a_key(control: &Control) {
    let (tenant, _, _) = furnish(control);
    let change = ProjectChange { rate_limit_rps: Some(Some(7)), ..ProjectChange::default() };
    wait(control.update_project(project_id(1), change, Records::none())).unwrap();
    let token = made(control, new_monitor_token(2, 1));
    let chain = ChainId { tenant_id: tenant_id(1), project_id: project_id(1), mode: Mode::Live };
    assert_eq!((token.chain(), token.last_used_at_ms, token.revoked_at_ms), (chain, None, None));
    let expected = MonitorAccess { token: token.clone(), tenant, project_rate_rps: Some(7) };
    assert_eq!(access(control, 2), Some(expected));
    assert_eq!(wait(control.access(digest(2))), Ok(None), "no key has the digest of a token");
    assert_eq!(access(control, 1), None, "and no token that of a key");
    assert_eq!(wait(control.keys(project_id(1), first(9))).unwrap().len(), 1);
    assert_eq!(wait(control.monitor_token(token.id)), Ok(Some(token)));
    assert_eq!(wait(control.monitor_token(MonitorTokenId(id(9)))), Ok(None));
}

pub fn a_token_is_for_a_project_of_its_tenant_or_the_system_chain(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    wait(control.create_project(new_project(2, 2, &[]), vec![])).unwrap();
    let (own, other) = (ProjectId::system_from_random([1; 16]), ProjectId::system_from_random([2; 16]));
    wait(control.system_project(tenant_id(1), own)).unwrap();
    wait(control.system_project(tenant_id(2), other)).unwrap();
    let of = |n, project_id| NewMonitorToken { project_id, ..new_monitor_token(n, 1) };
    for project_id in [project_id(2), project_id(9), other] {
        assert_eq!(create(control, of(2, project_id)), None, "{project_id}");
    }
    let token = made(control, of(2, own));
    assert!(token.chain().is_system());
    assert_eq!(access(control, 2).unwrap().project_rate_rps, None);
    made(control, new_monitor_token(3, 1));
    wait(control.close_tenant(tenant_id(1), MORNING_MS + 5, None, vec![])).unwrap();
    assert_eq!(create(control, new_monitor_token(4, 1)), None, "the tenant was closed");
    for n in [2, 3] {
        assert_eq!(access(control, n).unwrap().token.revoked_at_ms, Some(MORNING_MS + 5));
    }
    let left = |limit| wait(control.monitor_tokens_not_revoked(tenant_id(1), limit)).unwrap();
    assert_eq!(left(1), [MonitorTokenId(id(2))]);
    wait(control.revoke_monitor_token(MonitorTokenId(id(2)), MORNING_MS, Records::none())).unwrap();
    assert_eq!(left(9), [MonitorTokenId(id(3))]);
}

pub fn a_chain_has_so_many_tokens_that_work_and_a_name_once(control: &Control) {
    furnish(control);
    wait(control.create_project(new_project(2, 1, &[]), vec![])).unwrap();
    let most = u8::try_from(WORKING_MAX).unwrap();
    let with_record = |n, project: u8| {
        wait(control.create_monitor_token(new_monitor_token(n, project), vec![record(n)])).unwrap()
    };
    let token = made(control, new_monitor_token(1, 1));
    assert_eq!(with_record(1, 1), Some(MonitorTokenCreated::Exists));
    let same_name = NewMonitorToken { name: token.name.clone(), ..new_monitor_token(2, 1) };
    assert_eq!(create(control, same_name.clone()), Some(MonitorTokenCreated::NameTaken));
    for n in 2..=most {
        made(control, new_monitor_token(n, 1));
    }
    assert_eq!(with_record(100, 1), Some(MonitorTokenCreated::TooMany));
    assert_eq!(wait(control.count_records()), Ok(0), "what was not made leaves no record");
    assert!(matches!(with_record(101, 2), Some(MonitorTokenCreated::Done(_))), "another chain has its own");
    assert_eq!(wait(control.count_records()), Ok(1));
    wait(control.revoke_monitor_token(token.id, MORNING_MS + 1, Records::none())).unwrap();
    assert!(matches!(with_record(100, 1), Some(MonitorTokenCreated::Done(_))), "one was revoked");
    let later = |n| NewMonitorToken { created_at_ms: MORNING_MS + 1000, ..new_monitor_token(n, 1) };
    let before = NewMonitorToken { created_at_ms: MORNING_MS + 999, ..later(102) };
    assert_eq!(create(control, before), Some(MonitorTokenCreated::TooMany));
    assert!(matches!(create(control, later(102)), Some(MonitorTokenCreated::Done(_))), "the others ended");
}

pub fn tokens_made_at_the_same_time_are_never_too_many(control: &Control) {
    furnish(control);
    let most = u8::try_from(WORKING_MAX).unwrap();
    let made: usize = std::thread::scope(|scope| {
        let ask = |from: u8| {
            let done =
                |n| matches!(create(control, new_monitor_token(n, 1)), Some(MonitorTokenCreated::Done(_)));
            (from..from + most).filter(|n| done(*n)).count()
        };
        let threads = [10, 60, 110].map(|from| scope.spawn(move || ask(from)));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(made, WORKING_MAX);
}

pub fn a_revoked_token_keeps_the_first_time_and_raises_its_tenants_version(control: &Control) {
    furnish(control);
    let before = control.version_of(tenant_id(1));
    let token = made(control, new_monitor_token(2, 1));
    let created = control.version_of(tenant_id(1));
    assert!(created > before);
    let revoke = |now_ms, records| wait(control.revoke_monitor_token(token.id, now_ms, records)).unwrap();
    let revoked = revoke(MORNING_MS + 5, Records::of(vec![record(1)])).unwrap();
    assert_eq!(revoked, MonitorToken { revoked_at_ms: Some(MORNING_MS + 5), ..token.clone() });
    assert!(control.version_of(tenant_id(1)) > created, "every node asks again");
    assert_eq!(revoke(MORNING_MS + 6, Records::none()), Some(revoked.clone()));
    assert_eq!(access(control, 2).unwrap().token, revoked);
    assert!(revoked.state().revoked);
    assert_eq!(wait(control.count_records()), Ok(1));
    let missing = wait(control.revoke_monitor_token(MonitorTokenId(id(9)), 1, Records::none()));
    assert_eq!(missing, Ok(None));
}

pub fn a_tokens_last_use_never_goes_back(control: &Control) {
    furnish(control);
    let token = made(control, new_monitor_token(2, 1));
    let version = control.version();
    for (used, expected) in [(50, 50), (70, 70), (60, 70)] {
        let told = vec![(MonitorTokenId(id(9)), used), (token.id, used)];
        wait(control.monitor_tokens_used(told)).unwrap();
        let found = wait(control.monitor_token(token.id)).unwrap().unwrap();
        assert_eq!(found.last_used_at_ms, Some(expected));
    }
    assert_eq!(control.version(), version, "a use alters nothing that a request may do");
}

pub fn tokens_are_listed_by_project_and_by_tenant_and_pages_join(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    wait(control.create_project(new_project(2, 2, &[]), vec![])).unwrap();
    let system = ProjectId::system_from_random([1; 16]);
    wait(control.system_project(tenant_id(1), system)).unwrap();
    for n in 1..=5 {
        made(control, new_monitor_token(n, 1));
        made(control, NewMonitorToken { tenant_id: tenant_id(2), ..new_monitor_token(100 + n, 2) });
    }
    made(control, NewMonitorToken { project_id: system, ..new_monitor_token(6, 1) });
    let of_project = |page| {
        let tokens = wait(control.monitor_tokens(project_id(1), page)).unwrap();
        tokens.iter().map(|token| token.id.0).collect::<Vec<_>>()
    };
    assert_eq!(of_project(first(3)), [id(1), id(2), id(3)]);
    assert_eq!(of_project(page(Some(id(3)), 3)), [id(4), id(5)]);
    assert_eq!(of_project(page(Some(id(101)), 3)), [], "of another project");
    let of_tenant = |page| {
        let tokens = wait(control.monitor_tokens_of_tenant(tenant_id(1), page)).unwrap();
        tokens.into_iter().map(|(token, project)| (token.id.0, project)).collect::<Vec<_>>()
    };
    let named = |n| (id(n), Some("Project 1".to_owned()));
    assert_eq!(of_tenant(first(3)), [(id(6), None), named(5), named(4)]);
    assert_eq!(of_tenant(page(Some(id(4)), 9)), [named(3), named(2), named(1)]);
    assert_eq!(of_tenant(page(Some(id(101)), 9)), [], "of another tenant");
}
