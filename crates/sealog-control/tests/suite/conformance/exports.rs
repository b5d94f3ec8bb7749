//! Exports: frozen queries, and what their first complete download came to.

use sealog_control::*;
use sealog_core::id::{Mode, ProjectId};

use super::common::*;
use sealog_testing::*;

fn furnished(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
}

pub fn an_export_reads_back_and_its_record_waits(control: &Control) {
    furnished(control);
    // Of a system chain too, whose project is no project.
    let new = NewExport { project_id: ProjectId::system_from_random([3; 16]), ..new_export(1, 1) };
    let export = wait(control.create_export(new.clone(), 9, Records::of(vec![record(9)]))).unwrap().unwrap();
    assert_eq!(export, Export { new, totals: None });
    assert_eq!(wait(control.export_by_id(ExportId(id(1)))), Ok(Some(export)));
    assert_eq!(wait(control.export_by_id(ExportId(id(2)))), Ok(None));
    let records = wait(control.pending_records(tenant_id(1), 10)).unwrap();
    assert_eq!(records.last().unwrap().id, id(9));
}

pub fn what_a_complete_download_came_to_is_noted_once(control: &Control) {
    furnished(control);
    wait(control.create_export(new_export(1, 1), 9, Records::none())).unwrap().unwrap();
    let totals = |n: u8| ExportTotals { rows: n.into(), bytes: 100, sha256: digest(n), at_ms: MORNING_MS };
    let complete = |n| wait(control.complete_export(ExportId(id(1)), totals(n)));
    assert_eq!(complete(1), Ok(Some(totals(1))));
    assert_eq!(complete(2), Ok(Some(totals(1))), "the second is told of the first");
    assert_eq!(wait(control.export_by_id(ExportId(id(1)))).unwrap().unwrap().totals, Some(totals(1)));
    assert_eq!(wait(control.complete_export(ExportId(id(7)), totals(1))), Ok(None));
}

pub fn exports_of_a_project_and_mode_are_listed_newest_first(control: &Control) {
    furnished(control);
    for (n, mode) in [(1, Mode::Live), (2, Mode::Test), (3, Mode::Live), (4, Mode::Live)] {
        wait(control.create_export(NewExport { mode, ..new_export(n, 1) }, 99, Records::none()))
            .unwrap()
            .unwrap();
    }
    let list = |after, limit| {
        let page = ListPage { after, limit };
        let exports = wait(control.exports_of(tenant_id(1), project_id(1), Mode::Live, page)).unwrap();
        exports.iter().map(|export| export.new.id).collect::<Vec<_>>()
    };
    assert_eq!(list(None, 9), [4, 3, 1].map(|n| ExportId(id(n))));
    assert_eq!(list(Some(id(4)), 1), [ExportId(id(3))]);
    assert_eq!(list(Some(id(2)), 9), []);
    let other =
        wait(control.exports_of(tenant_id(2), project_id(1), Mode::Live, ListPage { after: None, limit: 9 }));
    assert_eq!(other, Ok(vec![]));
}

pub fn the_oldest_export_that_was_downloaded_gives_way_to_one_too_many(control: &Control) {
    furnished(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    let create = |n, tenant, gives_way: Option<u8>| {
        let tell = move |before: Option<&Export>, after: &Export| {
            assert_eq!(before.map(|before| before.new.id), gives_way.map(|n| ExportId(id(n))));
            assert_eq!(after.new.id, ExportId(id(n)));
            vec![record(n)]
        };
        wait(control.create_export(new_export(n, tenant), 3, Records::told_by(tell))).unwrap().is_some()
    };
    for n in [1, 2, 3] {
        assert!(create(n, 1, None));
    }
    // Nobody loses what was not downloaded yet; another tenant has its own.
    assert!(!create(4, 1, None) && create(9, 2, None));
    assert_eq!(wait(control.count_records()), Ok(4), "what was not made left no record");
    let totals = |n| ExportTotals { rows: 1, bytes: 2, sha256: digest(n), at_ms: 4 };
    for n in [3, 2] {
        wait(control.complete_export(ExportId(id(n)), totals(n))).unwrap().unwrap();
    }
    assert!(create(4, 1, Some(2)) && create(5, 1, Some(3)) && !create(6, 1, None));
    let kept = wait(control.exports_of(tenant_id(1), project_id(1), Mode::Live, first(9))).unwrap();
    assert_eq!(
        kept.iter().map(|export| export.new.id).collect::<Vec<_>>(),
        [5, 4, 1].map(|n| ExportId(id(n)))
    );
    assert_eq!(
        wait(control.complete_export(ExportId(id(2)), totals(2))),
        Ok(None),
        "a download may still end"
    );
}
