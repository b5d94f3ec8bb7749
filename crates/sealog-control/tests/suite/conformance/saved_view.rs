//! Saved views.

use sealog_control::*;
use sealog_core::id::ProjectId;

use super::common::*;
use sealog_testing::*;

const TWO: ViewsMax = ViewsMax { own: 2, shared: 2 };

fn furnished(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    for (n, tenant) in [(1, 1), (2, 1), (1, 2)] {
        wait(control.add_member(new_member(n, tenant, &format!("{n}@example.com")), Records::none()))
            .unwrap();
    }
}

fn view(n: u8, tenant: u8, person: u8, name: &str) -> SavedView {
    SavedView {
        id: id(n),
        tenant_id: tenant_id(tenant),
        person_id: person_id(person),
        name: name.into(),
        query: format!("q={n}"),
        shared_in: None,
        is_pinned: false,
        created_at_ms: MORNING_MS,
    }
}

fn save(control: &Control, view: SavedView) -> ViewKept {
    wait(control.save_view(view, TWO, Records::none())).unwrap()
}

fn of(control: &Control, tenant: u8, person: u8, project: u8) -> Vec<SavedView> {
    wait(control.saved_views(tenant_id(tenant), person_id(person), project_id(project))).unwrap()
}

fn change(control: &Control, n: u8, tenant: u8, person: u8, change: ViewChange) -> ViewKept {
    let (tenant_id, person_id) = (tenant_id(tenant), person_id(person));
    wait(control.change_view(tenant_id, person_id, id(n), change, TWO, Records::none())).unwrap()
}

fn share(project: Option<ProjectId>) -> ViewChange {
    ViewChange { shared_in: Some(project), is_pinned: None }
}

pub fn a_person_has_so_many_views_in_a_tenant_and_one_of_a_name(control: &Control) {
    furnished(control);
    assert_eq!(save(control, view(1, 1, 1, "a")), ViewKept::Kept);
    assert_eq!(save(control, view(2, 1, 1, "b")), ViewKept::Kept);
    assert_eq!(save(control, view(3, 1, 1, "c")), ViewKept::Full, "there is no room for a third one");
    assert_eq!(save(control, view(3, 1, 1, "a")), ViewKept::Kept, "but for another one of the same name");
    for others in [view(4, 1, 2, "a"), view(5, 2, 1, "a")] {
        assert_eq!(save(control, others), ViewKept::Kept, "others have their own");
    }
    assert_eq!(of(control, 1, 1, 1), [view(2, 1, 1, "b"), view(3, 1, 1, "a")]);
    let remove = |n, tenant, person| {
        let whose = WhoseView::Of(person_id(person));
        wait(control.remove_view(tenant_id(tenant), id(n), whose, Records::none())).unwrap()
    };
    assert!(!remove(2, 1, 2) && !remove(2, 2, 1), "that of somebody else, and that of another tenant");
    assert!(remove(2, 1, 1) && !remove(2, 1, 1));
    assert_eq!(of(control, 1, 1, 1), [view(3, 1, 1, "a")]);
}

pub fn a_shared_view_is_seen_in_its_project_and_changed_by_its_owner(control: &Control) {
    furnished(control);
    save(control, view(1, 1, 1, "a"));
    assert_eq!(of(control, 1, 2, 1), []);
    let told = Records::told_by(|before: Option<&SavedView>, after: &SavedView| {
        let is_new = before.unwrap().shared_in.is_none() && after.shared_in == Some(project_id(1));
        if is_new { vec![record(1)] } else { vec![] }
    });
    let both = ViewChange { shared_in: Some(Some(project_id(1))), is_pinned: Some(true) };
    let made = control.change_view(tenant_id(1), person_id(1), id(1), both, TWO, told);
    assert_eq!(wait(made), Ok(ViewKept::Kept));
    assert_eq!(wait(control.count_records()), Ok(1), "the record is kept with the change");
    let shared = SavedView { shared_in: Some(project_id(1)), is_pinned: true, ..view(1, 1, 1, "a") };
    assert_eq!(of(control, 1, 2, 1), std::slice::from_ref(&shared));
    assert_eq!(of(control, 1, 2, 2), [], "in another project it is not there");
    assert_eq!(of(control, 1, 1, 2), [shared], "but its owner has it everywhere");
    assert_eq!(of(control, 2, 1, 1), [], "and another tenant never");
    // Nobody else changes it, and its owner does not put another in its place unawares.
    for (tenant, person) in [(1, 2), (2, 1)] {
        assert_eq!(change(control, 1, tenant, person, share(None)), ViewKept::NotFound);
    }
    assert_eq!(save(control, view(2, 1, 1, "a")), ViewKept::NameShared);
    assert_eq!(change(control, 1, 1, 1, share(None)), ViewKept::Kept);
    assert_eq!(of(control, 1, 2, 1), []);
    assert_eq!(of(control, 1, 1, 1), [SavedView { is_pinned: true, ..view(1, 1, 1, "a") }]);
}

pub fn so_many_views_are_shared_in_a_project(control: &Control) {
    furnished(control);
    let in_first = |n, person, name| SavedView { shared_in: Some(project_id(1)), ..view(n, 1, person, name) };
    assert_eq!(save(control, in_first(1, 1, "a")), ViewKept::Kept);
    assert_eq!(save(control, in_first(2, 1, "b")), ViewKept::Kept);
    assert_eq!(save(control, in_first(3, 2, "c")), ViewKept::SharedFull);
    assert_eq!(save(control, view(3, 1, 2, "c")), ViewKept::Kept);
    assert_eq!(change(control, 3, 1, 2, share(Some(project_id(1)))), ViewKept::SharedFull);
    assert_eq!(change(control, 3, 1, 2, share(Some(project_id(2)))), ViewKept::Kept);
    // What is shared in a project already takes no second place there.
    let pin = ViewChange { shared_in: Some(Some(project_id(1))), is_pinned: Some(true) };
    assert_eq!(change(control, 1, 1, 1, pin), ViewKept::Kept);
}

pub fn a_shared_view_is_removed_by_its_owner_or_for_its_project(control: &Control) {
    furnished(control);
    for (n, name) in [(1, "a"), (2, "b")] {
        save(control, SavedView { shared_in: Some(project_id(1)), ..view(n, 1, 1, name) });
    }
    save(control, view(3, 1, 2, "own"));
    let remove = |n, tenant, whose| {
        let told = Records::told_by(move |before: Option<&SavedView>, _: &SavedView| {
            assert_eq!(before.unwrap().id, id(n));
            vec![record(n)]
        });
        wait(control.remove_view(tenant_id(tenant), id(n), whose, told)).unwrap()
    };
    assert!(!remove(1, 1, WhoseView::SharedIn(project_id(2))), "it is not shared there");
    assert!(!remove(1, 2, WhoseView::SharedIn(project_id(1))), "it is not of that tenant");
    assert!(!remove(3, 1, WhoseView::SharedIn(project_id(1))), "it is somebody's own");
    assert_eq!(wait(control.count_records()), Ok(0));
    assert!(remove(1, 1, WhoseView::SharedIn(project_id(1))));
    assert!(remove(2, 1, WhoseView::Of(person_id(1))));
    assert_eq!((of(control, 1, 1, 1), wait(control.count_records())), (vec![], Ok(2)));
}
