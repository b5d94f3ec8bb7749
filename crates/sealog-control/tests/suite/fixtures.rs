//! Control data that an earlier build wrote, opened by this one. `fixtures/README.md` says what is in there
//! and how it was made.

use sealog_control::*;
use sealog_core::id::{ProjectId, TenantId};
use sealog_core::key;
use sealog_core::time::parse_rfc3339_ms;
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::postgres::PostgresStore;
use sealog_store::world::World;
use sealog_testing::fixture::*;
use sealog_testing::postgres::cluster;
use sealog_testing::*;
use serde_json::Value;

/// Keys open what they opened, and tenants, projects, custom actions and users are what they were.
fn control_data_is_there(control: &Control, fixture: &Fixture, now_ms: u64) {
    let page = ListPage { after: None, limit: 1000 };
    let mut people = 0;
    for expected in fixture.list("keys") {
        let access = wait(control.access(key::digest(text(expected, "key")))).unwrap().unwrap();
        let chain = chain_of(expected);
        assert_eq!(
            (access.tenant.id, access.project.id, access.key.mode),
            (chain.tenant_id, chain.project_id, chain.mode)
        );
        assert!(text(expected, "key").starts_with(&access.key.prefix));
        let state = match access.key.state().check(now_ms) {
            Ok(()) => "valid",
            Err(sealog_core::reject::Reject::KeyRevoked) => "revoked",
            Err(sealog_core::reject::Reject::KeyExpired) => "expired",
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(state, text(expected, "state"));
    }
    assert_eq!(wait(control.access(key::digest("at_live_of_nobody"))).unwrap(), None);
    let tenants = wait(control.tenants(page)).unwrap();
    assert_eq!(tenants.len(), fixture.list("control").len());
    for (tenant, expected) in tenants.iter().zip(fixture.list("control")) {
        let facts = &expected["tenant"];
        assert_eq!(tenant.id.to_string(), text(facts, "tenant_id"));
        assert_eq!((tenant.name.as_str(), tenant.plan.as_str()), (text(facts, "name"), text(facts, "plan")));
        assert_eq!(tenant.contact_email.as_deref(), facts["contact_email"].as_str());
        assert_eq!(tenant.rate_limit_rps.map(u64::from), facts["rate_limit_rps"].as_u64());
        assert_eq!(Some(tenant.created_at_ms), parse_rfc3339_ms(text(facts, "created_at")));
        let projects = wait(control.projects(tenant.id, page)).unwrap();
        let expected_projects = expected["projects"].as_array().unwrap();
        assert_eq!(projects.len(), expected_projects.len());
        for (project, expected) in projects.iter().zip(expected_projects) {
            assert_eq!(project.id.to_string(), text(expected, "project_id"));
            assert_eq!(project.name, text(expected, "name"));
            let enabled: Vec<&str> =
                expected["frameworks"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            let catalog = sealog_core::catalog::Catalog::builtin();
            assert_eq!(Ok(project.frameworks), catalog.framework_set(enabled.iter().copied()));
            // One that is no longer enabled is remembered.
            let ever: &[&str] = if enabled.is_empty() { &[] } else { &["hipaa", "gdpr"] };
            assert_eq!(Ok(project.frameworks_ever), catalog.framework_set(ever.iter().copied()));
        }
        let actions = wait(control.actions(tenant.id)).unwrap();
        let names = |actions: &[Value]| {
            actions.iter().map(|action| text(action, "action").to_owned()).collect::<Vec<_>>()
        };
        let expected_actions = expected["actions"].as_array().unwrap();
        assert_eq!(
            actions.iter().map(|action| action.action.clone()).collect::<Vec<_>>(),
            names(expected_actions)
        );
        for action in &actions {
            assert_eq!(action.required_fields, ["order_id"]);
            assert_eq!(action.optional_fields, ["note"]);
        }
        let members = wait(control.members(tenant.id, page)).unwrap();
        let expected_users = expected["users"].as_array().unwrap();
        assert_eq!(members.len(), expected_users.len());
        for (Member { person, membership }, expected) in members.into_iter().zip(expected_users) {
            assert_eq!(person.id.0.to_string(), text(expected, "user_id"));
            assert_eq!(person.email, text(expected, "email"));
            assert_eq!(membership.role.as_str(), text(expected, "role"));
            assert_eq!(Some(membership.created_at_ms), parse_rfc3339_ms(text(expected, "created_at")));
            assert_eq!((&membership.grants, membership.ends_at_ms), (&Grants::default(), None));
            // One person, one membership, and the password that it had.
            assert_eq!(wait(control.memberships(person.id)), Ok(vec![membership]));
            let (found, hash) = wait(control.person_by_email(person.email.to_uppercase())).unwrap().unwrap();
            assert_eq!(found, person);
            // The owner of the first run has not claimed the account.
            assert_eq!(hash.is_some_and(|hash| hash.starts_with("$argon2id$")), person.verified);
            people += usize::from(person.verified);
        }
    }
    assert_eq!(people, 4, "members with a password");
    for expected in fixture.list("work") {
        work_is_there(control, expected);
    }
}

/// The case and the view of a member who has used the dashboard.
fn work_is_there(control: &Control, expected: &Value) {
    let (tenant_id, project_id) =
        (TenantId(id(expected, "tenant_id")), ProjectId(id(expected, "project_id")));
    let (person, _) = wait(control.person_by_email(text(expected, "email").into())).unwrap().unwrap();
    let cases = wait(control.open_cases(tenant_id, ListPage { after: None, limit: 9 })).unwrap();
    let [case] = &cases[..] else { panic!("{cases:?}") };
    let (typed, intake) = (&expected["case"], &case.intake);
    assert_eq!(case.created_by, person.id);
    assert_eq!(
        (intake.requester.as_str(), intake.contact.as_str(), intake.wrote.as_str()),
        (text(typed, "requester"), text(typed, "contact"), text(typed, "wrote"))
    );
    let entries = wait(control.case_entries(tenant_id, case.id, 0, 9)).unwrap();
    assert_eq!(entries.iter().map(|entry| &*entry.entry.note).collect::<Vec<_>>(), [text(typed, "note")]);
    let views = wait(control.saved_views(tenant_id, person.id, project_id)).unwrap();
    let [view] = &views[..] else { panic!("{views:?}") };
    let typed = &expected["view"];
    assert_eq!(
        (&*view.name, &*view.query, view.is_pinned),
        (text(typed, "name"), text(typed, "query"), true)
    );
}

/// Adds a member of one tenant to another, and ends that membership.
fn goes_on(control: &Control) {
    let tenants = wait(control.tenants(ListPage { after: None, limit: 2 })).unwrap();
    let member = wait(control.members(tenants[0].id, ListPage { after: None, limit: 1 })).unwrap().remove(0);
    let new = NewMember {
        tenant_id: tenants[1].id,
        person: NewPerson {
            id: PersonId(sealog_core::id::Uuid([9; 16])),
            email: member.person.email.to_uppercase(),
            password_hash: None,
            verified: false,
            created_at_ms: 1,
        },
        role: Role::PrivacyOfficer,
        grants: Grants::default(),
        ends_at_ms: None,
        created_at_ms: 1,
    };
    let added = wait(control.add_member(new, Records::none())).unwrap().unwrap();
    assert_eq!(added.person, member.person);
    let ended = MemberChange { ends_at_ms: Some(Some(2)), ..MemberChange::default() };
    let ended = wait(control.update_member(tenants[1].id, member.person.id, ended, Records::none()))
        .unwrap()
        .unwrap();
    assert!(matches!(ended, MemberChanged::Done(ended) if ended.membership.has_ended(2)));
}

fn opens(control: impl Fn() -> Control, fixture: &Fixture, now_ms: u64) {
    for _ in 0..2 {
        control_data_is_there(&control(), fixture, now_ms);
    }
    let before = wait(control().export()).unwrap();
    goes_on(&control());
    wait(control().replace(before.clone())).unwrap();
    assert_eq!(wait(control().export()), Ok(before));
}

#[test]
fn control_data_that_an_earlier_build_wrote_opens_with_everything_in_it() {
    for build in BUILDS {
        for (name, archive) in [("stopped", "stopped.tar.gz"), ("killed", "killed.tar.gz")] {
            let fixture = Fixture::load(build, name);
            let (dir, world) = (fixture.unpacked(archive), fixture.world());
            let store =
                EmbeddedStore::open(dir.path(), &Options { world: world.clone(), ..Options::default() })
                    .unwrap();
            opens(|| Control::embedded(&store).unwrap(), &fixture, world.now_ms());
        }
    }
}

#[test]
fn control_data_that_an_earlier_build_wrote_to_a_database_opens_with_everything_in_it() {
    for build in BUILDS {
        let fixture = Fixture::load(build, "postgres");
        let world = fixture.world();
        let database = cluster().database();
        restore(&database, &fixture.dir.join("postgres.sql.gz"));
        sealog_store::postgres::migrate(&database.url()).unwrap();
        migrate(&database.url()).unwrap();
        let store = PostgresStore::open(&database.url(), &on_postgres(&world)).unwrap();
        opens(|| Control::on_postgres(&store).unwrap(), &fixture, world.now_ms());
    }
}
