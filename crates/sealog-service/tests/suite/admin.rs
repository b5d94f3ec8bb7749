//! Administration as everybody who is not the operator's interface sees it: typed input, errors beside their
//! fields, and the records that changes leave.

use std::sync::Arc;

use sealog_control::{Control, Grants, KeyAccess, PersonId};
use sealog_core::catalog::CustomAction;
use sealog_core::id::{ProjectId, TenantId, Uuid};
use sealog_core::plan::Plan;
use sealog_core::time::iso_ms;
use sealog_service::Secret;
use sealog_service::people::admin::close::{CHANGES_MAX, CloseInput};
use sealog_service::people::admin::keys::{KeyInput, OVERLAP_MS_MAX, RollInput};
use sealog_service::people::admin::monitor_tokens::{MonitorTokenInput, Watched};
use sealog_service::people::admin::people::{MemberInput, MemberUpdate};
use sealog_service::people::admin::projects::{ProjectInput, ProjectUpdate};
use sealog_service::people::admin::tenants::{TenantInput, TenantUpdate};
use sealog_service::people::admin::{Actor, Admin, AdminError};
use sealog_service::records::system_chain::Wake;
use sealog_store::world::SystemWorld;
use serde_json::{Value, json};

struct Stage {
    control: Arc<Control>,
    admin: Admin,
    tenant_id: TenantId,
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

impl Stage {
    fn new() -> Stage {
        let control = Arc::new(Control::in_memory());
        let world = Arc::new(SystemWorld);
        let admin = Admin::new(Arc::clone(&control), world, &Plan::defaults(), Wake::default());
        let input = TenantInput { name: "Acme".into(), ..TenantInput::default() };
        let tenant_id = wait(admin.create_tenant(Actor::Host, input)).unwrap().id;
        Stage { control, admin, tenant_id }
    }

    /// The last record that waits.
    fn last(&self) -> Value {
        let records = wait(self.control.pending_records(self.tenant_id, 100)).unwrap();
        serde_json::from_str(&records.last().unwrap().draft).unwrap()
    }

    fn count(&self) -> u64 {
        wait(self.control.count_records()).unwrap()
    }
}

fn member(email: &str) -> MemberInput {
    MemberInput { email: email.into(), password: Secret("correct horse".into()), role: "developer".into() }
}

/// The field that an error is about.
fn field<T: std::fmt::Debug>(result: Result<T, AdminError>) -> String {
    match result {
        Err(AdminError::Field(error)) => error.field,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_error_names_the_field_that_it_is_about_and_changes_nothing() {
    let Stage { control, admin, tenant_id } = &Stage::new();
    let before = wait(control.count_records());
    let by = Actor::Operator;
    let text = |text: &str| Some(text.to_owned());
    let tenant = |change: fn(&mut TenantInput)| {
        let mut input = TenantInput { name: "x".into(), ..TenantInput::default() };
        change(&mut input);
        field(wait(admin.create_tenant(by, input)))
    };
    assert_eq!(tenant(|input| input.name.clear()), "name");
    assert_eq!(tenant(|input| input.plan = Some("gold".into())), "plan");
    assert_eq!(tenant(|input| input.contact_email = Some("nobody".into())), "contact_email");
    assert_eq!(tenant(|input| input.trial_ends_at = Some("soon".into())), "trial_ends_at");
    let update = TenantUpdate { contact_email: Some(text("a b@c")), ..TenantUpdate::default() };
    assert_eq!(field(wait(admin.update_tenant(by, *tenant_id, update))), "contact_email");
    let input = ProjectInput { name: "x".into(), frameworks: vec!["nonsense".into()] };
    assert_eq!(field(wait(admin.create_project(by, *tenant_id, input))), "frameworks");
    let update = ProjectUpdate { name: text(""), ..ProjectUpdate::default() };
    let project_id = ProjectId(Uuid::from_random([1; 16]));
    assert_eq!(field(wait(admin.update_project(by, project_id, update))), "name");
    let key =
        |mode: &str, expires_at| KeyInput { name: "x".into(), mode: mode.into(), expires_at, form: None };
    assert_eq!(field(wait(admin.create_key(by, project_id, key("prod", None)))), "mode");
    assert_eq!(field(wait(admin.create_key(by, project_id, key("live", text("never"))))), "expires_at");
    let action = CustomAction {
        action: "sealog.mine".into(),
        description: None,
        category: None,
        severity: None,
        required_fields: vec![],
        optional_fields: vec![],
    };
    assert_eq!(field(wait(admin.create_action(by, *tenant_id, action))), "action");
    let add = |input: MemberInput| field(wait(admin.add_member(by, *tenant_id, input)));
    assert_eq!(add(member("nobody")), "email");
    assert_eq!(add(MemberInput { role: "king".into(), ..member("a@b") }), "role");
    assert_eq!(add(MemberInput { password: Secret("short".into()), ..member("a@b") }), "password");
    // And what does not exist is another thing than a field that is wrong.
    let nowhere = TenantId(Uuid::from_random([2; 16]));
    let missing = wait(admin.update_tenant(by, nowhere, TenantUpdate::default()));
    assert_eq!(missing.unwrap_err(), AdminError::NotFound);
    assert_eq!(wait(admin.add_member(by, nowhere, member("a@b"))).unwrap_err(), AdminError::NotFound);
    assert_eq!(wait(control.count_records()), before);
}

#[test]
fn a_person_does_not_make_somebody_a_member_without_asking() {
    let stage = Stage::new();
    let person = Actor::Person(PersonId(Uuid::from_random([3; 16])));
    for actor in [person, Actor::System] {
        let added = wait(stage.admin.add_member(actor, stage.tenant_id, member("zoe@example.com")));
        assert!(matches!(added, Err(AdminError::Internal(_))), "{added:?}");
    }
    assert_eq!(wait(stage.control.person_by_email("zoe@example.com".into())), Ok(None));
}

#[test]
fn a_change_of_a_membership_is_told_from_and_to_by_the_person_who_makes_it() {
    let stage = Stage::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    // It hashes a password on a thread of the runtime.
    let add = stage.admin.add_member(Actor::Operator, stage.tenant_id, member("zoe@example.com"));
    let member_id = runtime.block_on(add).unwrap().person.id;
    let owner = PersonId(Uuid::from_random([3; 16]));
    let update = |update: MemberUpdate| {
        let made = stage.admin.update_member(Actor::Person(owner), stage.tenant_id, member_id, update);
        wait(made).map(|_| ())
    };
    let project_id = ProjectId(Uuid::from_random([4; 16]));
    let grants = Grants { projects: Some(vec![project_id]), from_ms: None, until_ms: None };
    let audits = MemberUpdate { role: Some("auditor".into()), ..MemberUpdate::default() };
    update(MemberUpdate { grants: Some(grants.clone()), ..audits.clone() }).unwrap();
    let told = stage.last();
    assert_eq!(
        (&told["action"], &told["actor_id"], &told["resource"]),
        (
            &json!("sealog.member_changed"),
            &json!(owner.0.to_string()),
            &json!(format!("member/{}", member_id.0))
        )
    );
    let open = json!({"projects": null, "from": null, "until": null});
    let one = json!({"projects": [project_id.to_string()], "from": null, "until": null});
    assert_eq!(told["metadata"]["role"], json!({"from": "developer", "to": "auditor"}));
    assert_eq!(told["metadata"]["grants"], json!({"from": open, "to": one}));
    assert_eq!(told["metadata"].as_object().unwrap().len(), 3, "these two and the record's id: {told}");
    let before = stage.count();
    update(MemberUpdate { grants: Some(grants), ends_at: Some(None), ..audits }).unwrap();
    assert_eq!(stage.count(), before, "nothing has changed");
    update(MemberUpdate { ends_at: Some(Some("2027-01-01T00:00:00Z".into())), ..MemberUpdate::default() })
        .unwrap();
    assert_eq!(stage.last()["metadata"]["ends_at"], json!({"from": null, "to": "2027-01-01T00:00:00.000Z"}));
    let nobody = PersonId(Uuid::from_random([9; 16]));
    let missing =
        stage.admin.update_member(Actor::Operator, stage.tenant_id, nobody, MemberUpdate::default());
    assert_eq!(wait(missing).unwrap_err(), AdminError::NotFound);
}

#[test]
fn a_key_lives_no_longer_than_the_organisation_allows_where_the_plan_includes_that() {
    let Stage { control, admin, tenant_id } = &Stage::new();
    let by = Actor::Operator;
    let input = ProjectInput { name: "p".into(), frameworks: vec![] };
    let project_id = wait(admin.create_project(by, *tenant_id, input)).unwrap().id;
    let day_ms = 86_400_000;
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let in_days = |days: u64| iso_ms(u64::try_from(now_ms).unwrap() + days * day_ms);
    let create = |expires_at: Option<String>| {
        let input = KeyInput { name: "k".into(), mode: "test".into(), expires_at, form: None };
        wait(admin.create_key(by, project_id, input))
    };
    assert_eq!(create(None).unwrap().key.expires_at_ms, None);
    for days in [0, 3661] {
        assert_eq!(field(wait(admin.set_key_policy(by, *tenant_id, Some(days)))), "days");
    }
    wait(admin.set_key_policy(by, *tenant_id, Some(30))).unwrap();
    assert_eq!(field(create(Some(in_days(31)))), "expires_at");
    assert!(create(Some(in_days(29))).is_ok());
    let made = create(None).unwrap();
    let lives_ms = made.key.expires_at_ms.unwrap() - made.key.created_at_ms;
    assert_eq!(lives_ms, 30 * day_ms, "as long as it may, unless it says less");
    // A key that takes the place of another is a new one.
    let late = RollInput { overlap_ms: 0, expires_at: Some(in_days(31)), form: None };
    assert_eq!(field(wait(admin.roll_key(by, made.key.id, late))), "expires_at");
    let before = wait(control.count_records()).unwrap();
    wait(admin.set_key_policy(by, *tenant_id, Some(30))).unwrap();
    assert_eq!(wait(control.count_records()), Ok(before), "nothing has changed");
    // On a plan without it, it is not enforced, and cannot be set.
    let plan = TenantUpdate { plan: Some("entry".into()), ..TenantUpdate::default() };
    wait(admin.update_tenant(by, *tenant_id, plan)).unwrap();
    assert_eq!(create(None).unwrap().key.expires_at_ms, None);
    assert_eq!(field(wait(admin.set_key_policy(by, *tenant_id, None))), "days");
}

#[test]
fn a_rolled_key_and_its_successor_work_side_by_side_for_as_long_as_was_chosen() {
    let stage = Stage::new();
    let by = Actor::Operator;
    let input = ProjectInput { name: "p".into(), frameworks: vec![] };
    let project_id = wait(stage.admin.create_project(by, stage.tenant_id, input)).unwrap().id;
    let input = KeyInput { name: "ci".into(), mode: "live".into(), expires_at: None, form: None };
    let old = wait(stage.admin.create_key(by, project_id, input)).unwrap();
    let too_long = RollInput { overlap_ms: OVERLAP_MS_MAX + 1, expires_at: None, form: None };
    assert_eq!(field(wait(stage.admin.roll_key(by, old.key.id, too_long))), "overlap");
    let roll = RollInput { overlap_ms: 3_600_000, expires_at: None, form: None };
    let new = wait(stage.admin.roll_key(by, old.key.id, roll)).unwrap();
    assert_eq!((new.key.name.as_str(), new.key.mode, new.key.project_id), ("ci", old.key.mode, project_id));
    assert!(new.text.0 != old.text.0 && new.text.0.starts_with("at_live_"));
    let (_, kept) = wait(stage.control.key(old.key.id)).unwrap().unwrap();
    let left_ms = kept.expires_at_ms.unwrap() - new.key.created_at_ms;
    assert_eq!((left_ms, kept.revoked_at_ms), (3_600_000, None));
    assert!(wait(stage.control.access(sealog_core::key::digest(&new.text.0))).unwrap().is_some());
    let told = stage.last();
    assert_eq!(told["action"], "sealog.key_rolled");
    assert_eq!(told["metadata"]["replaces"], format!("key/{}", old.key.id.0));
    assert!(!told.to_string().contains(&new.text.0));
}

#[test]
fn a_retired_action_is_told_of_once() {
    let Stage { control, admin, tenant_id } = &Stage::new();
    let by = Actor::Operator;
    let action = CustomAction {
        action: "a.b".into(),
        description: None,
        category: None,
        severity: None,
        required_fields: vec![],
        optional_fields: vec![],
    };
    wait(admin.create_action(by, *tenant_id, action)).unwrap();
    wait(admin.retire_action(by, *tenant_id, "a.b".into())).unwrap();
    assert_eq!(wait(admin.retire_action(by, *tenant_id, "a.b".into())), Err(AdminError::NotFound));
    assert_eq!(wait(control.actions(*tenant_id)), Ok(vec![]));
    let records = wait(control.pending_records(*tenant_id, 100)).unwrap();
    assert_eq!(records.iter().filter(|record| record.draft.contains("sealog.action_retired")).count(), 1);
}

#[test]
fn closing_ends_a_hundred_keys_a_call_goes_on_where_it_stopped_and_records_each_once() {
    let stage = Stage::new();
    let input = ProjectInput { name: "p".into(), ..ProjectInput::default() };
    let project = wait(stage.admin.create_project(Actor::Host, stage.tenant_id, input)).unwrap();
    for n in 0..=CHANGES_MAX {
        let key = KeyInput { name: format!("k{n}"), mode: "live".into(), ..KeyInput::default() };
        wait(stage.admin.create_key(Actor::Host, project.id, key)).unwrap();
    }
    let token = MonitorTokenInput { name: "m".into(), ..MonitorTokenInput::default() };
    let of_project = Watched::Project(project.id);
    wait(stage.admin.create_monitor_token(Actor::Host, of_project, token.clone())).unwrap();
    let owner = MemberInput { role: "owner".into(), ..member("a@example.com") };
    wait(stage.admin.add_member(Actor::Host, stage.tenant_id, owner)).unwrap();
    let before = stage.count();
    let close = |name: &str, reason: &str| {
        let input = CloseInput { name: name.into(), reason: reason.into(), even_with_open_cases: false };
        wait(stage.admin.close_tenant(Actor::Host, stage.tenant_id, input))
    };
    assert_eq!(field(close("Other", "r")), "name");
    assert_eq!(field(close("Acme", " ")), "reason");
    assert_eq!(field(close("Acme", &"r".repeat(256))), "reason");
    assert_eq!(stage.count(), before);
    let first = close("Acme", "contract ended").unwrap();
    assert_eq!((first.keys_revoked, first.members_ended, first.is_done), (CHANGES_MAX, 1, false));
    let second = close("Acme", "again").unwrap();
    assert_eq!((second.keys_revoked, second.members_ended, second.is_done), (2, 0, true));
    let third = close("Acme", "and again").unwrap();
    assert_eq!((third.closed_at_ms, third.keys_revoked, third.is_done), (first.closed_at_ms, 0, true));
    // The tenant, each key, the monitor token and the member.
    assert_eq!(stage.count() - before, 1 + CHANGES_MAX as u64 + 1 + 1 + 1);
    for watched in [of_project, Watched::SystemChain(stage.tenant_id)] {
        let made = wait(stage.admin.create_monitor_token(Actor::Host, watched, token.clone()));
        assert_eq!(field(made.map(drop)), "project_id");
    }
    let key = KeyInput { name: "k".into(), mode: "live".into(), ..KeyInput::default() };
    assert_eq!(field(wait(stage.admin.create_key(Actor::Host, project.id, key))), "project_id");
    let new = wait(stage.admin.add_member(Actor::Host, stage.tenant_id, member("b@example.com")));
    assert_eq!(field(new), "tenant_id");
}
