//! Control data, by who asks for it.

use std::sync::Arc;

use sealog_control::{
    Administration, CaseEvents, Cases, Control, Disclosing, Endings, Exports, Jobs, KeyAccess, Operators,
    Outbox, OutboxDesk, PendingRecords, People, SystemProjects,
};

/// Each part of the program gets the traits that it asks; all of them may be one [`Control`].
#[derive(Clone)]
pub struct ControlData {
    pub keys: Arc<dyn KeyAccess>,
    pub administration: Arc<dyn Administration>,
    pub people: Arc<dyn People>,
    pub outbox: Arc<dyn Outbox>,
    pub records: Arc<dyn PendingRecords>,
    pub system_projects: Arc<dyn SystemProjects>,
    pub jobs: Arc<dyn Jobs>,
    pub exports: Arc<dyn Exports>,
    pub cases: Arc<dyn Cases>,
    pub case_events: Arc<dyn CaseEvents>,
    pub endings: Arc<dyn Endings>,
    pub operators: Arc<dyn Operators>,
    pub outbox_desk: Arc<dyn OutboxDesk>,
    pub disclosing: Arc<dyn Disclosing>,
    /// All of it, for those who copy it.
    pub whole: Arc<Control>,
}

impl From<Arc<Control>> for ControlData {
    fn from(control: Arc<Control>) -> ControlData {
        ControlData {
            keys: Arc::clone(&control) as _,
            administration: Arc::clone(&control) as _,
            people: Arc::clone(&control) as _,
            outbox: Arc::clone(&control) as _,
            records: Arc::clone(&control) as _,
            system_projects: Arc::clone(&control) as _,
            jobs: Arc::clone(&control) as _,
            cases: Arc::clone(&control) as _,
            case_events: Arc::clone(&control) as _,
            exports: Arc::clone(&control) as _,
            endings: Arc::clone(&control) as _,
            operators: Arc::clone(&control) as _,
            disclosing: Arc::clone(&control) as _,
            outbox_desk: Arc::clone(&control) as _,
            whole: control,
        }
    }
}

impl std::fmt::Debug for ControlData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ControlData")
    }
}
