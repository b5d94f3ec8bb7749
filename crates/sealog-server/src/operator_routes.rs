//! Every path of the operator's interface, in one table: the router, the labels of metrics and the published
//! description are made from it, as from that of the API.

use hyper::Method;

use crate::routes::Path;

pub(crate) const BODY_BYTES_MAX: usize = 64 << 10;

/// What every path of the interface begins with; the table has what comes after it.
pub(crate) const BEGINNING: &str = "/operator/v1/";

/// What an operator can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    CreateTenant,
    ListTenants,
    UpdateTenant,
    ReadTenant,
    CreateProject,
    ListProjects,
    UpdateProject,
    ReadProject,
    CreateKey,
    ListKeys,
    RevokeKey,
    CreateMonitorToken,
    ListMonitorTokens,
    RevokeMonitorToken,
    CreateAction,
    ListActions,
    CreateUser,
    ListUsers,
    ReadEpoch,
}

pub(crate) static PATHS: [Path<Operation>; 11] = [
    Path {
        pattern: "tenants",
        operations: &[(Method::GET, Operation::ListTenants), (Method::POST, Operation::CreateTenant)],
    },
    Path {
        pattern: "tenants/{tenant_id}",
        operations: &[(Method::GET, Operation::ReadTenant), (Method::PATCH, Operation::UpdateTenant)],
    },
    Path {
        pattern: "tenants/{tenant_id}/projects",
        operations: &[(Method::GET, Operation::ListProjects), (Method::POST, Operation::CreateProject)],
    },
    Path {
        pattern: "tenants/{tenant_id}/actions",
        operations: &[(Method::GET, Operation::ListActions), (Method::POST, Operation::CreateAction)],
    },
    Path {
        pattern: "tenants/{tenant_id}/users",
        operations: &[(Method::GET, Operation::ListUsers), (Method::POST, Operation::CreateUser)],
    },
    Path {
        pattern: "projects/{project_id}",
        operations: &[(Method::GET, Operation::ReadProject), (Method::PATCH, Operation::UpdateProject)],
    },
    Path {
        pattern: "projects/{project_id}/keys",
        operations: &[(Method::GET, Operation::ListKeys), (Method::POST, Operation::CreateKey)],
    },
    Path { pattern: "keys/{key_id}/revoke", operations: &[(Method::POST, Operation::RevokeKey)] },
    Path {
        pattern: "projects/{project_id}/monitor-tokens",
        operations: &[
            (Method::GET, Operation::ListMonitorTokens),
            (Method::POST, Operation::CreateMonitorToken),
        ],
    },
    Path {
        pattern: "monitor-tokens/{token_id}/revoke",
        operations: &[(Method::POST, Operation::RevokeMonitorToken)],
    },
    Path { pattern: "replication/epoch", operations: &[(Method::GET, Operation::ReadEpoch)] },
];
