//! What tests of verifications and exports share: a rule on both stores, and an organisation to do it in.

use std::sync::Arc;

use sealog_control::*;
use sealog_core::id::TenantId;
use sealog_core::plan::Billing;
use sealog_store::Store;
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::postgres::PostgresStore;
use sealog_testing::*;

/// Each rule on a new store of each kind.
pub fn on_both(rule: impl Fn(Arc<dyn Store>, Control)) {
    let dir = tempfile::tempdir().unwrap();
    // Room for the largest event.
    let options =
        Options { segment_bytes_first: 8 << 20, segment_bytes_max: 8 << 20, ..small(&StillWorld::new()) };
    let store = EmbeddedStore::open(dir.path(), &options).unwrap();
    let control = Control::embedded(&store).unwrap();
    rule(Arc::new(store), control);
    let database = postgres::cluster().database();
    let store = PostgresStore::open(&database.url(), &on_postgres(&StillWorld::new())).unwrap();
    let control = Control::on_postgres(&store).unwrap();
    rule(Arc::new(store), control);
}

/// An organisation and its owner.
pub fn furnish(control: &Control, tenant_id: TenantId, owner: PersonId) {
    let tenant = NewTenant {
        id: tenant_id,
        name: "T".into(),
        plan: "top".into(),
        contact_email: None,
        billing: Billing { trial_ends_at_ms: None, billing_active: true },
        created_at_ms: MORNING_MS,
    };
    wait(control.create_tenant(tenant, vec![])).unwrap();
    let person = NewPerson {
        id: owner,
        email: "a@example.com".into(),
        password_hash: None,
        verified: true,
        created_at_ms: MORNING_MS,
    };
    let member = NewMember {
        tenant_id,
        person,
        role: Role::Owner,
        grants: Grants::default(),
        ends_at_ms: None,
        created_at_ms: MORNING_MS,
    };
    wait(control.add_member(member, Records::none())).unwrap().unwrap();
}
