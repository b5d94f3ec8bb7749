//! The project that is reserved for a tenant's system chain.

use std::collections::HashSet;

use sealog_control::*;
use sealog_core::id::ProjectId;
use sealog_store::StoreError;

use super::common::*;
use sealog_testing::*;

fn system(n: u8) -> ProjectId {
    ProjectId::system_from_random([n; 16])
}

fn ask(control: &Control, tenant: u8, new: u8) -> Option<ProjectId> {
    wait(control.system_project(tenant_id(tenant), system(new))).unwrap()
}

pub fn a_tenant_has_one_system_project_that_is_made_once(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    assert_eq!(ask(control, 1, 1), Some(system(1)));
    assert_eq!(ask(control, 1, 2), Some(system(1)), "the first one stays");
    assert_eq!(ask(control, 2, 3), Some(system(3)));
    assert_eq!(ask(control, 9, 4), None, "there is no such tenant");
    let owner = |project_id| wait(control.tenant_of_system_project(project_id)).unwrap();
    assert_eq!((owner(system(1)), owner(system(3))), (Some(tenant_id(1)), Some(tenant_id(2))));
    assert_eq!((owner(system(2)), owner(project_id(1))), (None, None));
    assert_eq!(wait(control.export()).unwrap().system_projects.len(), 2);
}

pub fn of_many_that_ask_at_once_all_get_the_same_system_project(control: &Control) {
    furnish(control);
    for round in 0..10 {
        wait(control.create_tenant(new_tenant(10 + round), vec![])).unwrap();
        let answers: Vec<_> = std::thread::scope(|threads| {
            let asked: Vec<_> =
                (0..8).map(|n| threads.spawn(move || ask(control, 10 + round, round * 10 + n))).collect();
            asked.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
        });
        assert_eq!(answers.iter().collect::<HashSet<_>>().len(), 1, "{answers:?}");
        assert_eq!(ask(control, 10 + round, 200), Some(answers[0]));
    }
}

pub fn a_system_project_is_told_by_its_id_and_no_other_project_has_one(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    let other = wait(control.system_project(tenant_id(1), ProjectId::from_random([1; 16])));
    assert!(matches!(other, Err(StoreError::Refused(_))), "{other:?}");
    let named = NewProject { id: system(2), ..new_project(2, 1, &[]) };
    let named = wait(control.create_project(named, vec![record(1)]));
    assert!(matches!(named, Err(StoreError::Refused(_))), "{named:?}");
    // Two tenants never share one.
    assert_eq!(ask(control, 1, 3), Some(system(3)));
    let shared = wait(control.system_project(tenant_id(2), system(3)));
    assert!(matches!(shared, Err(StoreError::Refused(_))), "{shared:?}");
    assert_eq!((wait(control.count_records()), ask(control, 2, 4)), (Ok(0), Some(system(4))));
}

pub fn no_list_shows_a_system_project_and_nothing_can_change_it(control: &Control) {
    let (_, project, _) = furnish(control);
    assert_eq!(ask(control, 1, 1), Some(system(1)));
    assert_eq!(wait(control.projects(tenant_id(1), first(10))), Ok(vec![project]));
    assert_eq!(wait(control.project(system(1))), Ok(None));
    assert_eq!(wait(control.update_project(system(1), ProjectChange::default(), Records::none())), Ok(None));
    let key = NewKey { project_id: system(1), ..new_key(2, 1) };
    assert_eq!(wait(control.create_key(key, vec![])), Ok(None));
    assert_eq!(wait(control.keys(system(1), first(10))), Ok(vec![]));
}
