//! Control data, by who asks for it.

use std::sync::Arc;

use sealog_control::{Administration, Control, KeyAccess, Outbox, People};

/// Each part of the program gets the traits that it asks; all of them may be one [`Control`].
#[derive(Clone)]
pub struct ControlData {
    pub keys: Arc<dyn KeyAccess>,
    pub administration: Arc<dyn Administration>,
    pub people: Arc<dyn People>,
    pub outbox: Arc<dyn Outbox>,
}

impl From<Arc<Control>> for ControlData {
    fn from(control: Arc<Control>) -> ControlData {
        ControlData {
            keys: Arc::clone(&control) as _,
            administration: Arc::clone(&control) as _,
            people: Arc::clone(&control) as _,
            outbox: control,
        }
    }
}

impl std::fmt::Debug for ControlData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ControlData")
    }
}
