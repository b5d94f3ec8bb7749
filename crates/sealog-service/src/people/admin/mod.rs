//! What administrators may do: tenants, projects, keys, actions, people. Whoever asks (the operator's
//! interface, a page, a command on the host) calls the same functions: what is allowed and what follows
//! stands here once.
//!
//! Every change leaves its event in the tenant's system chain. The record of it commits in the transaction of
//! the change, and says who the [`Actor`] was; [`crate::records::system_chain`] has the rest of its way.

pub mod actions;
pub mod close;
pub mod fields;
pub mod first;
pub mod key_policy;
pub mod keys;
pub mod monitor_tokens;
pub mod people;
pub mod projects;
pub mod settings;
pub mod tenants;
pub mod views;

use std::sync::Arc;

use sealog_control::ChangeError;
use sealog_core::plan::Plan;
use sealog_store::StoreError;
use sealog_store::world::World;

use crate::people::sign_in::SignInCounts;
use crate::records::system_chain::{Recorder, Wake};
use sealog_control::Control;

pub use crate::records::system_chain::Actor;
pub use fields::FieldError;

/// The administration of a process.
#[derive(Clone)]
pub struct Admin {
    control: Arc<Control>,
    world: Arc<dyn World>,
    plans: Arc<[Plan]>,
    wake: Wake,
    sign_ins: Arc<SignInCounts>,
}

impl Admin {
    /// `wake` tells the drain of this process that there are records.
    pub fn new(control: Arc<Control>, world: Arc<dyn World>, plans: &[Plan], wake: Wake) -> Admin {
        Admin { control, world, plans: plans.into(), wake, sign_ins: Arc::default() }
    }

    /// For others who leave records.
    pub fn wake(&self) -> &Wake {
        &self.wake
    }

    /// What a plan of this name includes; nothing where the operator has taken it out of the configuration.
    pub fn plan(&self, name: &str) -> Option<&Plan> {
        self.plans.iter().find(|plan| plan.name == name)
    }

    /// All that there are.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// Counted by pages, shown by the metrics.
    pub fn sign_ins(&self) -> &Arc<SignInCounts> {
        &self.sign_ins
    }

    fn administration(&self) -> &Control {
        &self.control
    }

    fn people(&self) -> &Control {
        &self.control
    }

    fn recorder(&self, actor: Actor) -> Recorder {
        Recorder::new(actor, Arc::clone(&self.world))
    }

    /// After a change that has left records; one that has failed may have been made all the same.
    async fn made<T, E>(&self, change: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let made = change.await;
        self.wake.wake();
        made
    }
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminError {
    /// A form can show it beside the field.
    Field(FieldError),
    /// What it is about does not exist.
    NotFound,
    Store(StoreError),
    Internal(String),
}

impl From<FieldError> for AdminError {
    fn from(error: FieldError) -> AdminError {
        AdminError::Field(error)
    }
}

impl From<StoreError> for AdminError {
    fn from(error: StoreError) -> AdminError {
        AdminError::Store(error)
    }
}

/// `exists` is what to say when there is one of that name.
fn change_error(error: ChangeError, exists: FieldError) -> AdminError {
    match error {
        ChangeError::AlreadyExists => exists.into(),
        ChangeError::Store(error) => error.into(),
    }
}
