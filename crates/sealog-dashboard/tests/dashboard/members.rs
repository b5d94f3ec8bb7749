//! Members: invited, changed, ended, renewed.

use sealog_control::*;
use sealog_core::id::{Hash, Uuid};

use crate::harness::*;

fn stage() -> Stage {
    let stage = Stage::new();
    stage.tenant(1);
    stage.tenant(2);
    stage.member(1, 1, Role::Owner);
    stage.member(2, 1, Role::Admin);
    stage.member(3, 1, Role::Developer);
    stage
}

fn members() -> String {
    format!("/app/o/{}/members", tenant_id(1))
}

fn of(n: u8) -> String {
    format!("{}/{}", members(), person_id(n).0)
}

fn membership(stage: &Stage, n: u8) -> Membership {
    stage.wait(stage.control.member(tenant_id(1), person_id(n))).unwrap().unwrap().membership
}

fn records(stage: &Stage, action: &str) -> usize {
    stage.records(1).iter().filter(|record| record.contains(action)).count()
}

#[test]
fn an_organisation_has_a_hundred_open_invitations_and_the_page_shows_them_all() {
    let stage = stage();
    for n in 0..100u8 {
        let link = Link {
            id: Uuid::from_random([n; 16]),
            digest: Some(Hash([n; 32])),
            purpose: Purpose::Invitation(Invitation {
                tenant_id: tenant_id(1),
                email: format!("guest{n}@example.org"),
                role: Role::Developer,
                grants: Grants::default(),
                ends_at_ms: None,
                invited_by: None,
            }),
            created_at_ms: stage.now_ms(),
            expires_at_ms: stage.now_ms() + 1000,
        };
        stage.wait(stage.control.create_link(link, None, vec![])).unwrap().unwrap();
    }
    let mut owner = stage.signed_in(1);
    let page = owner.get(&members());
    assert_eq!(page.text().matches("name=\"invitation\"").count(), 100);
    let mut invite = |email: &str| {
        owner.post(&format!("{}/invite", members()), &[("email", email), ("role", "developer")])
    };
    let refused = invite("one.more@example.org");
    assert_eq!(refused.status, 422);
    refused.shows("There are 100 open invitations, the maximum.").shows("value=\"one.more@example.org\"");
    // In place of one that is open there is room.
    assert_eq!(invite("GUEST7@example.org").status, 303);
    let open = stage.wait(stage.control.invitations(tenant_id(1), stage.now_ms(), 999)).unwrap();
    assert_eq!(open.len(), 100);
    stage.clock.advance(1000);
    assert_eq!(
        stage
            .signed_in(1)
            .post(
                &format!("{}/invite", members()),
                &[("email", "one.more@example.org"), ("role", "developer")]
            )
            .status,
        303
    );
}

#[test]
fn an_address_gets_five_invitations_in_an_hour_and_an_organisation_sends_fifty() {
    let stage = stage();
    let mut owner = stage.signed_in(1);
    let mut invite = |email: &str| {
        owner.post(&format!("{}/invite", members()), &[("email", email), ("role", "developer")])
    };
    for _ in 0..5 {
        assert_eq!(invite("a@example.org").status, 303);
    }
    let refused = invite("A@example.org");
    assert_eq!(refused.status, 422);
    refused.shows("Too many invitations in an hour");
    for n in 0..44 {
        assert_eq!(invite(&format!("{n}@example.org")).status, 303, "{n}");
    }
    assert_eq!(invite("another@example.org").status, 422);
    // Another organisation has its own count, and the address has one.
    stage.member(9, 2, Role::Owner);
    let path = format!("/app/o/{}/members/invite", tenant_id(2));
    let invite =
        |email: &str| stage.signed_in(9).post(&path, &[("email", email), ("role", "developer")]).status;
    assert_eq!((invite("another@example.org"), invite("a@example.org")), (303, 422));
}

#[test]
fn what_somebody_has_sent_is_withdrawn_with_the_right_to_send_it() {
    let stage = stage();
    let invite = |n: u8, email: &str, role: &str| {
        let asked =
            stage.signed_in(n).post(&format!("{}/invite", members()), &[("email", email), ("role", role)]);
        assert_eq!(asked.status, 303);
    };
    stage.member(4, 1, Role::Owner);
    invite(4, "to.own@example.org", "owner");
    invite(4, "to.help@example.org", "admin");
    invite(2, "of.admin@example.org", "developer");
    let mut owner = stage.signed_in(1);
    // An admin may not give what an owner may.
    assert_eq!(owner.post(&of(4), &[("role", "admin")]).status, 303);
    let page = owner.get(&members());
    page.shows("to.help@example.org").shows("of.admin@example.org");
    assert!(!page.has("to.own@example.org"));
    assert_eq!(records(&stage, "sealog.invitation_withdrawn"), 1);
    for n in [2, 4] {
        assert_eq!(owner.post(&format!("{}/end", of(n)), &[("end", "now")]).status, 303);
    }
    let page = owner.get(&members());
    assert!(!page.has("to.help@example.org") && !page.has("of.admin@example.org"));
    assert_eq!(records(&stage, "sealog.invitation_withdrawn"), 3);
}

#[test]
fn every_member_is_on_a_page_of_a_hundred() {
    let stage = stage();
    for n in 0..104u8 {
        let person = NewPerson {
            id: PersonId(Uuid::from_random([n, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])),
            email: format!("many{n}@example.org"),
            password_hash: None,
            verified: true,
            created_at_ms: 1,
        };
        let new = NewMember {
            tenant_id: tenant_id(1),
            person,
            role: Role::Developer,
            grants: Grants::default(),
            ends_at_ms: None,
            created_at_ms: stage.now_ms(),
        };
        stage.wait(stage.control.add_member(new, Records::none())).unwrap().unwrap();
    }
    stage.with_authenticator(2);
    let mut browser = stage.signed_in(1);
    let first = browser.get(&members());
    let rows = |page: &Response| page.text().matches("<tr><th scope=\"row\">").count();
    assert_eq!((rows(&first), first.text().matches(">In use<").count()), (100, 1));
    let next =
        first.text().split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let second = browser.get(&next);
    assert_eq!(rows(&second), 7);
    second.shows("many103@example.org").shows(">First<");
    let nobody = format!("{}?after={}", members(), person_id(99).0);
    assert_eq!(rows(&browser.get(&nobody)), 0, "behind somebody who is no member there is nobody");
}

#[test]
fn a_role_and_grants_are_changed_and_counted_at_once() {
    let stage = stage();
    stage.with_authenticator(3);
    let mut developer = stage.signed_in(3);
    assert_eq!(developer.get(&format!("/app/o/{}/keys", tenant_id(1))).status, 200);
    stage.signed_in(1).get(&of(3)).shows("<option value=\"developer\" selected>");
    let project = project_id(101).to_string();
    let fields = [
        ("role", "auditor"),
        ("project", project.as_str()),
        ("from", "2026-01-01"),
        ("until", "2026-06-30"),
        ("ends", "2030-01-31"),
    ];
    assert_eq!(
        stage.signed_in(2).post(&of(3), &fields).location(),
        Some(format!("{}?done=change", members()))
    );
    let changed = membership(&stage, 3);
    assert_eq!((changed.role, &changed.grants.projects), (Role::Auditor, &Some(vec![project_id(101)])));
    assert_eq!(changed.grants.until_ms.map(|ms| ms % 86_400_000), Some(0), "to the end of that day");
    developer.get(&events_path(1)).is_problem(404, "request/not_found");
    assert_eq!(developer.get(&format!("/app/p/{project}/live/events")).status, 200);
    // The form has it as it is.
    let page = stage.signed_in(1).get(&of(3));
    for part in [
        "value=\"2026-01-01\"",
        "value=\"2026-06-30\"",
        "value=\"2030-01-31\"",
        &format!("value=\"{project}\" checked"),
    ] {
        page.shows(part);
    }
    let told = stage.records(1).into_iter().find(|record| record.contains("sealog.member_changed")).unwrap();
    assert!(told.contains(&person_id(2).0.to_string()) && told.contains("\"to\":\"auditor\""), "{told}");
    // Somebody who is no auditor any more sees everything.
    assert_eq!(stage.signed_in(1).post(&of(3), &[("role", "privacy_officer")]).status, 303);
    let changed = membership(&stage, 3);
    assert_eq!((changed.grants, changed.ends_at_ms), (Grants::default(), None));
}

#[test]
fn what_is_wrong_stands_beside_its_field_and_nothing_is_changed() {
    let stage = stage();
    let before = membership(&stage, 3);
    let foreign = project_id(2).to_string();
    let own = project_id(1).to_string();
    for (fields, problem) in [
        (vec![("role", "emperor")], "Choose a role you can assign."),
        (vec![("role", "auditor")], "Choose the projects the auditor can see."),
        (vec![("role", "auditor"), ("project", foreign.as_str())], "Choose projects of this organisation."),
        (
            vec![("role", "auditor"), ("project", own.as_str()), ("from", "soon")],
            "Use the date format YYYY-MM-DD.",
        ),
        (
            vec![
                ("role", "auditor"),
                ("project", own.as_str()),
                ("from", "2026-02-02"),
                ("until", "2026-02-01"),
            ],
            "“Events from” must not be after “Events until”.",
        ),
        (vec![("role", "developer"), ("ends", "2020-01-01")], "“Member until” must not be in the past."),
        // What would not limit anything is not dropped in silence.
        (
            vec![("role", "developer"), ("project", own.as_str())],
            "Only auditors can be limited to projects and dates.",
        ),
        (
            vec![("role", "admin"), ("from", "2026-02-02")],
            "Only auditors can be limited to projects and dates.",
        ),
        (
            vec![("role", "developer"), ("until", "2026-02-02")],
            "Only auditors can be limited to projects and dates.",
        ),
    ] {
        let answer = stage.signed_in(1).post(&of(3), &fields);
        assert_eq!(answer.status, 422, "{problem}");
        answer.shows(problem);
        for (name, value) in fields.iter().filter(|(name, _)| matches!(*name, "from" | "until" | "ends")) {
            answer.shows(&format!("name=\"{name}\" type=\"date\" value=\"{value}\""));
        }
    }
    assert_eq!(membership(&stage, 3), before);
    assert_eq!(records(&stage, "sealog.member_changed"), 0);
}

#[test]
fn a_membership_ends_at_once_with_its_sessions_and_is_renewed() {
    let stage = stage();
    let mut developer = stage.signed_in(3);
    assert_eq!(developer.get(&events_path(1)).status, 200);
    assert_eq!(stage.signed_in(2).post(&format!("{}/end", of(3)), &[("end", "now")]).status, 303);
    assert!(!developer.is_signed_in(), "of somebody who is a member nowhere else");
    assert!(membership(&stage, 3).has_ended(stage.now_ms()));
    let page = stage.signed_in(1).get(&of(3));
    page.shows("Membership ended").shows(">Renew membership<");
    assert!(!page.has("End membership"));
    stage.signed_in(3).get(&events_path(1)).is_problem(404, "request/not_found");
    assert_eq!(stage.signed_in(1).post(&of(3), &[("role", "developer")]).status, 303);
    assert_eq!(stage.signed_in(3).get(&events_path(1)).status, 200);
    assert_eq!(records(&stage, "sealog.member_changed"), 2);
}

#[test]
fn the_last_owner_stays_one_and_admins_have_no_say_over_owners() {
    let stage = stage();
    for (path, fields) in [
        (of(1), vec![("role", "admin")]),
        (of(1), vec![("role", "owner"), ("ends", "2090-01-01")]),
        (format!("{}/end", of(1)), vec![("end", "now")]),
    ] {
        let answer = stage.signed_in(1).post(&path, &fields);
        assert_eq!(answer.status, 422);
        answer.shows("is the last owner without an end date");
    }
    // With another one it is different.
    assert_eq!(stage.signed_in(1).post(&of(3), &[("role", "owner")]).status, 303);
    let page = stage.signed_in(2).get(&of(1));
    page.shows("Your role cannot change owners.");
    assert!(!page.has("name=\"role\""));
    for (path, fields) in [(of(1), vec![("role", "admin")]), (format!("{}/end", of(3)), vec![("end", "now")])]
    {
        let answer = stage.signed_in(2).post(&path, &fields);
        assert_eq!(answer.status, 422);
        answer.shows("must be a role that you may grant or remove");
    }
    assert_eq!(stage.signed_in(2).post(&of(2), &[("role", "owner")]).status, 422, "nor who becomes one");
    assert_eq!((membership(&stage, 1).role, membership(&stage, 3).role), (Role::Owner, Role::Owner));
    assert_eq!(stage.signed_in(3).post(&format!("{}/end", of(1)), &[("end", "now")]).status, 303);
}

#[test]
fn somebody_of_another_organisation_is_like_nobody() {
    let stage = stage();
    stage.member(9, 2, Role::Owner);
    for n in [9, 99] {
        stage.signed_in(1).get(&of(n)).is_problem(404, "request/not_found");
        stage.signed_in(1).post(&of(n), &[("role", "admin")]).is_problem(404, "request/not_found");
        stage.signed_in(1).post(&format!("{}/end", of(n)), &[]).is_problem(404, "request/not_found");
    }
}

#[test]
fn projects_are_created_and_renamed_and_a_foreign_one_is_not_found() {
    let stage = stage();
    let projects = format!("/app/o/{}/projects", tenant_id(1));
    let create = |name: &str| stage.signed_in(2).post(&format!("{projects}/create"), &[("name", name)]);
    let wrong = create("  ");
    assert_eq!(wrong.status, 422);
    wrong.shows("It must not be empty.");
    let long = "x".repeat(256);
    create(&long).shows("must have at most 255 characters").shows(&format!("value=\"{long}\""));
    assert_eq!(create("Billing <b>").location(), Some(format!("{projects}?done=create")));
    let page = stage.signed_in(2).get(&projects);
    page.shows("Billing &#60;b&#62;");
    let all = stage.wait(stage.control.projects(tenant_id(1), ListPage { after: None, limit: 9 })).unwrap();
    let made = all.last().unwrap();
    let rename = |id: &str, name: &str| {
        stage.signed_in(2).post(&format!("{projects}/rename"), &[("project", id), ("name", name)])
    };
    rename(&project_id(2).to_string(), "Mine").is_problem(404, "request/not_found");
    let wrong = rename(&made.id.to_string(), "");
    assert_eq!(wrong.status, 422);
    wrong.shows("The name of Billing &#60;b&#62; must not be empty.");
    assert_eq!(rename(&made.id.to_string(), "Accounts").status, 303);
    let renamed = stage.wait(stage.control.project(made.id)).unwrap().unwrap();
    assert_eq!((renamed.name.as_str(), renamed.created_at_ms), ("Accounts", made.created_at_ms));
    assert_eq!(
        (records(&stage, "sealog.project_created"), records(&stage, "sealog.project_changed")),
        (1, 1)
    );
    let chain = sealog_core::id::ChainId { project_id: made.id, ..live(1) };
    assert_eq!(stage.wait(stage.store.head(chain)).unwrap().durable.chain_seq, 0);
}
