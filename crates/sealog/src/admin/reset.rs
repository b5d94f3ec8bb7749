//! Making a link to a new password: what the command asks for, what is done, and what came of it.

use sealog_cli::exit::{Exit, Failure};
use sealog_core::time::iso_ms;
use sealog_service::Secret;
use sealog_service::people::account::{HostLink, make_reset_link};
use sealog_service::people::sign_in::Failed;
use serde::{Deserialize, Serialize};

use super::host::Host;
use super::link_text;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    pub email: String,
}

/// What was made, as machines read it. Whoever has the link has the account, so nothing prints it by mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    #[serde(with = "link_text")]
    pub link: Secret,
    pub opens: Opens,
    pub expires_at: String,
}

/// What a link is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Opens {
    NewPassword,
    /// Nobody has claimed the account of the first owner yet.
    Claim,
}

/// No error names the address: a running server logs errors, and its log has nobody's address.
pub(crate) async fn make(host: &Host, request: &Request) -> Result<Made, Failure> {
    let Some(app_url) = &host.app_url else {
        return Err(Failure::usage(
            "the dashboard has no URL while the port is 0: give --app-url, the same as for the server",
        ));
    };
    let made = make_reset_link(host.opened.control(), &host.world, app_url, &request.email).await;
    host.wake.wake();
    let made = made.map_err(|Failed(error)| error.to_string())?;
    let HostLink { url, expires_at_ms, is_claim } =
        made.ok_or_else(|| Failure::new(Exit::NotFound, "no account has this address"))?;
    let opens = if is_claim { Opens::Claim } else { Opens::NewPassword };
    Ok(Made { link: url, opens, expires_at: iso_ms(expires_at_ms) })
}
