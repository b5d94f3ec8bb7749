//! The first run: what an empty store needs before the first event can be sent.

use crate::control::{Answer, Changed, Control};
use crate::db::{Db, DbError, Lock};
use crate::key::{self, NewKey};
use crate::link::{self, Link};
use crate::membership::{self, NewMember};
use crate::project::{self, NewProject};
use crate::record::NewRecord;
use crate::tenant::{self, NewTenant};

impl Control {
    /// Creates the first tenant with its project, keys and owner in one step, unless there is a tenant
    /// already. Whether it did. One step, because a crash in between would leave a store that looks set up
    /// and that nobody has a key to.
    pub fn create_first(&self, first: FirstRun, records: Vec<NewRecord>) -> Answer<'_, bool> {
        let tenant_id = first.tenant.id;
        let made: Answer<'_, _> = self.change_of_tenant(Lock::Version, move |db| {
            Ok(create(db, first)?.then_some(Changed { tenant_id, value: (), records }))
        });
        Box::pin(async move { Ok(made.await?.is_some()) })
    }
}

/// What an empty store needs before the first event can be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstRun {
    pub tenant: NewTenant,
    /// Of that tenant.
    pub project: NewProject,
    /// Of that project.
    pub keys: Vec<NewKey>,
    /// Of that tenant.
    pub owner: NewMember,
    /// With which the owner gets an address and a password; nothing for an owner who has both.
    pub claim: Option<Link>,
}

fn create(db: &mut dyn Db, first: FirstRun) -> Result<bool, DbError> {
    if tenant::exist(db)? {
        return Ok(false);
    }
    let FirstRun { tenant, project, keys, owner, claim } = first;
    tenant::insert(db, tenant.into())?;
    let elsewhere =
        || DbError::Refused("the project, its keys and the owner must belong to the first tenant".into());
    project::create(db, &project)?.ok_or_else(elsewhere)?;
    for key in keys {
        key::create(db, key)?.ok_or_else(elsewhere)?;
    }
    membership::add(db, owner)?.ok_or_else(elsewhere)?;
    if let Some(claim) = claim
        && !link::create(db, &claim, None)?
    {
        return Err(elsewhere());
    }
    Ok(true)
}
