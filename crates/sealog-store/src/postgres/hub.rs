//! Who follows this store on this node.

use std::sync::Arc;

use crate::feed::Hub;

pub(super) type Feed = Hub<Watched>;

#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Tells the tasks apart: one whose followers have all gone ends, even if others have come meanwhile.
    pub(super) watch: Option<Arc<()>>,
}
