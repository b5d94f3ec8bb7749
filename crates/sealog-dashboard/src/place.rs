//! What a page of the dashboard is about.

use sealog_control::{Grants, Membership, Project, Role, Tenant};
use sealog_core::id::{ChainId, Mode};

use crate::capability::{Capability, may};

/// The organisation, and the project, that a page is about, with what the person is there.
#[derive(Clone, Debug)]
pub struct Place {
    pub tenant: Tenant,
    pub membership: Membership,
    /// Those that the person may see.
    pub projects: Vec<Project>,
    pub chain: Option<(Project, Mode)>,
    /// Places where the chain that the rail leads to is known to be broken.
    pub broken: usize,
}

impl Place {
    pub(crate) fn role(&self) -> Role {
        self.membership.role
    }

    pub(crate) fn may(&self, capability: Capability) -> bool {
        may(self.role(), capability)
    }

    /// Where the pages of a project and mode are.
    pub(crate) fn project_path(&self) -> String {
        let (project, mode) = self.chain.as_ref().expect("the route names a project and a mode");
        format!("/app/p/{}/{}", project.id, mode.as_str())
    }

    pub(crate) fn events_path(&self) -> String {
        format!("{}/events", self.project_path())
    }

    pub(crate) fn chain_id(&self) -> Option<ChainId> {
        let (project, mode) = self.chain.as_ref()?;
        Some(ChainId { tenant_id: self.tenant.id, project_id: project.id, mode: *mode })
    }
}

/// Whether somebody sees a part of the time only.
pub(crate) fn is_window(grants: &Grants) -> bool {
    grants.from_ms.is_some() || grants.until_ms.is_some()
}
