//! Accounts of operators: what the command asks for, what is done, and what came of it.

use sealog_cli::exit::{Exit, Failure};
use sealog_control::ListPage;
use sealog_core::time::iso_ms;
use sealog_service::Secret;
use sealog_service::people::ops::{AddError, EnrolmentLink, add_operator, remove_operator};
use serde::{Deserialize, Serialize};

use super::host::Host;
use super::link_text;

/// Operators that one answer lists: it is one line.
pub(crate) const LISTED_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    Add { email: String },
    List {},
    Remove { email: String },
}

/// What was done, as machines read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Done {
    Added(Added),
    Listed { operators: Vec<Listed> },
    Removed { removed: bool },
}

/// Whoever has the link has the account, so nothing prints it by mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Added {
    pub operator_id: String,
    #[serde(with = "link_text")]
    pub link: Secret,
    pub expires_at: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    pub operator_id: String,
    pub email: String,
    /// Whether the authenticator is set up, before which the account opens nothing.
    pub enrolled: bool,
    pub created_at: String,
}

/// No error names the address: a running server logs errors, and its log has nobody's address.
pub(crate) async fn run(host: &Host, request: &Request) -> Result<Done, Failure> {
    let (control, world) = (&**host.opened.control(), &*host.world);
    let failed = |error: sealog_store::StoreError| Failure::from(error.to_string());
    match request {
        Request::Add { email } => {
            let url = host.console_url.as_ref().map_err(|why| Failure::usage(why.clone()))?;
            let made = add_operator(control, world, url, email).await.map_err(|error| match error {
                AddError::Address => Failure::usage("not a valid e-mail address"),
                AddError::Exists => {
                    let problem = "an enrolled operator already has this address; remove that account first";
                    Failure::from(problem.to_owned())
                }
                AddError::Store(error) => failed(error),
            })?;
            let EnrolmentLink { id, url, expires_at_ms } = made;
            let (operator_id, expires_at) = (id.0.to_string(), iso_ms(expires_at_ms));
            Ok(Done::Added(Added { operator_id, link: url, expires_at }))
        }
        Request::List {} => {
            let page = ListPage { after: None, limit: LISTED_MAX };
            let known = control.ops_users(page).await.map_err(failed)?;
            let listed = known.into_iter().map(|user| Listed {
                operator_id: user.id.0.to_string(),
                enrolled: user.is_enrolled(),
                created_at: iso_ms(user.created_at_ms),
                email: user.email,
            });
            Ok(Done::Listed { operators: listed.collect() })
        }
        Request::Remove { email } => {
            let removed = remove_operator(control, world, email).await.map_err(failed)?;
            if !removed {
                return Err(Failure::new(Exit::NotFound, "no operator has this address"));
            }
            Ok(Done::Removed { removed })
        }
    }
}
