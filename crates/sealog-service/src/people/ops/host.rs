//! What a command on the host does with operators' accounts. Nothing over HTTP makes one.

use sealog_control::Control;
use sealog_control::{ChangeError, NewOpsUser, OpsLink, OpsUserId};
use sealog_core::id::Uuid;
use sealog_store::StoreError;
use sealog_store::world::World;

use crate::people::contact::is_address;
use crate::people::sign_in::Token;
use crate::secret::Secret;

/// How long a link works by which an operator sets the password.
pub const ENROLMENT_MS: u64 = 24 * 60 * 60 * 1000;

/// A link that sets the password of an operator, once.
#[derive(Clone, Debug)]
pub struct EnrolmentLink {
    pub id: OpsUserId,
    pub url: Secret,
    pub expires_at_ms: u64,
}

/// Why no account was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddError {
    /// This is no e-mail address.
    Address,
    /// Somebody has it, and has an authenticator.
    Exists,
    Store(StoreError),
}

/// Makes an account, or another link for one that nobody has ever come into.
pub async fn add_operator(
    control: &Control,
    world: &dyn World,
    console_url: &str,
    email: &str,
) -> Result<EnrolmentLink, AddError> {
    let email = email.trim();
    if !is_address(email) {
        return Err(AddError::Address);
    }
    let (token, now_ms) = (Token::new(world), world.now_ms());
    let mut random = [0; 16];
    world.fill_random(&mut random);
    let expires_at_ms = now_ms.saturating_add(ENROLMENT_MS);
    let new = NewOpsUser {
        id: OpsUserId(Uuid::from_random(random)),
        email: email.to_owned(),
        link: OpsLink { digest: token.digest(), expires_at_ms },
        created_at_ms: now_ms,
    };
    match control.add_ops_user(new).await {
        Ok(user) => {
            tracing::info!(operator = %user.id.0, "created an operator account; it has no password yet");
            let url = Secret(format!("{console_url}/enrol#{}", token.0.0));
            Ok(EnrolmentLink { id: user.id, url, expires_at_ms })
        }
        Err(ChangeError::AlreadyExists) => Err(AddError::Exists),
        Err(ChangeError::Store(error)) => Err(AddError::Store(error)),
    }
}

/// Whether there was one.
pub async fn remove_operator(control: &Control, world: &dyn World, email: &str) -> Result<bool, StoreError> {
    let removed = control.remove_ops_user(email.trim().to_owned(), world.now_ms()).await?;
    if let Some(user) = &removed {
        tracing::info!(operator = %user.id.0, "removed an operator account and ended its sessions");
    }
    Ok(removed.is_some())
}
