//! Projects and their frameworks.

use sealog_control::*;
use sealog_core::catalog::FrameworkSet;
use sealog_core::id::{ProjectId, TenantId};
use sealog_store::StoreError;

use super::common::*;
use sealog_testing::*;

pub fn a_project_needs_its_tenant(control: &Control) {
    assert_eq!(wait(control.create_project(new_project(1, 1, &[0]), vec![])), Ok(None));
    assert_eq!(wait(control.create_key(new_key(1, 1), vec![])), Ok(None));
    assert_eq!(wait(control.create_action(TenantId(id(1)), custom("a.b"), vec![])), Ok(None));
    assert_eq!(wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())), Ok(None));
    assert!(matches!(
        wait(control.create_session(new_session(1, 1, u64::MAX), None)),
        Err(StoreError::Refused(_))
    ));
    assert!(matches!(wait(control.enqueue_notice(new_notice(1, 1, 80))), Err(StoreError::Refused(_))));
    // Nothing of that was kept.
    let (_, project, key) = furnish(control);
    assert_eq!(wait(control.projects(TenantId(id(1)), first(10))), Ok(vec![project]));
    assert_eq!(wait(control.keys(ProjectId(id(1)), first(10))), Ok(vec![key]));
    assert_eq!(wait(control.actions(TenantId(id(1)))), Ok(vec![]));
    assert_eq!(wait(control.members(TenantId(id(1)), first(10))), Ok(vec![]));
    assert_eq!(wait(control.pending_notices()), Ok(0));
}

pub fn frameworks_that_were_disabled_stay_known_as_ever_enabled(control: &Control) {
    let (_, project, _) = furnish(control);
    let enable = |frameworks: Option<FrameworkSet>, now_ms| {
        let change = ProjectChange { frameworks, now_ms, ..ProjectChange::default() };
        let changed = wait(control.update_project(project.id, change, Records::none())).unwrap().unwrap();
        assert_eq!(wait(control.project(project.id)), Ok(Some(changed.clone())));
        assert_eq!(wait(control.projects(project.tenant_id, first(9))), Ok(vec![changed.clone()]));
        (changed.frameworks, changed.frameworks_ever)
    };
    assert_eq!((project.frameworks, project.frameworks_ever), (set(&[0, 2]), set(&[0, 2])));
    assert_eq!(enable(Some(set(&[2, 11])), 1), (set(&[2, 11]), set(&[0, 2, 11])));
    assert_eq!(enable(None, 2), (set(&[2, 11]), set(&[0, 2, 11])));
    assert_eq!(enable(Some(FrameworkSet::NONE), 3), (FrameworkSet::NONE, set(&[0, 2, 11])));
    // Again, twice in the same millisecond, and every one there is.
    assert_eq!(enable(Some(set(&[0])), 4), (set(&[0]), set(&[0, 2, 11])));
    assert_eq!(enable(Some(FrameworkSet::NONE), 4), (FrameworkSet::NONE, set(&[0, 2, 11])));
    assert_eq!(enable(Some(set(&[0])), 4), (set(&[0]), set(&[0, 2, 11])));
    assert_eq!(enable(Some(FrameworkSet::ALL), 5), (FrameworkSet::ALL, FrameworkSet::ALL));
}

pub fn concurrent_changes_are_all_kept(control: &Control) {
    furnish(control);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                for n in 0..10 {
                    let n = 10 + thread * 10 + n;
                    wait(control.create_project(new_project(n, 1, &[usize::from(n % 12)]), vec![])).unwrap();
                    wait(control.create_key(new_key(n, n), vec![])).unwrap();
                    assert!(wait(control.access(digest(n))).unwrap().is_some());
                }
            });
        }
    });
    assert_eq!(wait(control.projects(TenantId(id(1)), first(100))).unwrap().len(), 41);
}

pub fn the_history_of_frameworks_is_kept(control: &Control) {
    wait(control.create_tenant(new_tenant(1), vec![])).unwrap();
    let new = NewProject { created_at_ms: 10, ..new_project(1, 1, &[0, 1]) };
    wait(control.create_project(new, vec![])).unwrap();
    for (now_ms, frameworks) in [(20, set(&[1, 2])), (30, set(&[1, 2])), (40, set(&[0]))] {
        let change = ProjectChange { frameworks: Some(frameworks), now_ms, ..ProjectChange::default() };
        wait(control.update_project(project_id(1), change, Records::none())).unwrap();
    }
    let history = wait(control.export()).unwrap().projects.remove(0).1;
    let rows = history.iter().map(|row| (row.framework, row.enabled_at_ms, row.disabled_at_ms));
    let expected = [(0, 10, Some(20)), (1, 10, Some(40)), (2, 20, Some(40)), (0, 40, None)];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
}

pub fn changes_of_different_frameworks_at_the_same_time_are_all_kept(control: &Control) {
    wait(control.create_tenant(new_tenant(1), vec![])).unwrap();
    wait(control.create_project(new_project(1, 1, &[0, 1, 2, 3]), vec![])).unwrap();
    // Nobody looks at what the others do: each enables one and disables one.
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            scope.spawn(move || {
                let (enable, disable) = (set(&[thread + 4]), set(&[thread]));
                let change = ProjectChange { enable, disable, now_ms: 20, ..ProjectChange::default() };
                wait(control.update_project(project_id(1), change, Records::none())).unwrap().unwrap();
            });
        }
    });
    let project = wait(control.project(project_id(1))).unwrap().unwrap();
    assert_eq!(project.frameworks, set(&[4, 5, 6, 7]));
    assert_eq!(project.frameworks_ever, set(&[0, 1, 2, 3, 4, 5, 6, 7]));
}

pub fn projects_are_found_by_their_ids_in_their_tenant(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    for (n, tenant) in [(2, 1), (3, 2), (4, 1)] {
        wait(control.create_project(new_project(n, tenant, &[1]), vec![])).unwrap();
    }
    let named = |ids: &[u8]| {
        let ids = ids.iter().map(|n| project_id(*n)).collect();
        let found = wait(control.projects_named(tenant_id(1), ids)).unwrap();
        found.into_iter().map(|project| (project.id, project.frameworks)).collect::<Vec<_>>()
    };
    assert_eq!(named(&[4, 3, 1, 9]), [(project_id(1), set(&[0, 2])), (project_id(4), set(&[1]))]);
    assert_eq!(named(&[]), []);
}
