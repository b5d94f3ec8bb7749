//! What people ask for: searches, decisions, packages and letters of cases. Who may ask is theirs to decide.

use std::sync::Arc;

use sealog_store::Store;
use sealog_store::world::World;

use sealog_control::Control;
use sealog_service::records::system_chain::{Drain, Wake};

#[derive(Clone)]
pub struct Disclosures {
    pub control: Arc<Control>,
    pub store: Arc<dyn Store>,
    pub world: Arc<dyn World>,
    pub drain: Arc<Drain>,
    /// Of the runner of this process.
    pub runner: Wake,
}

impl Disclosures {
    /// `runner` is that of the runner of this process.
    pub fn new(
        control: &Arc<Control>,
        store: Arc<dyn Store>,
        world: Arc<dyn World>,
        drain: Arc<Drain>,
        runner: &Wake,
    ) -> Disclosures {
        Disclosures { control: Arc::clone(control), store, world, drain, runner: runner.clone() }
    }

    /// There is a job, or a record.
    pub(super) fn wake(&self) {
        self.runner.wake();
        self.drain.wake.wake();
    }
}
