//! People: their kind of account, how they come to have one, and what they do with it. No HTTP.

mod devices;
mod failures;
mod kind;
mod links;
mod passwords;
mod records;
mod second_factor;

pub use devices::NEW_DEVICE;
pub(crate) use devices::new_device_text;
pub use failures::FailedSignIns;
pub use kind::{People, SignedInPerson};
pub use links::{CLAIM_MS, INVITATION, INVITATION_MS, INVITATIONS_MAX, OWNER, RESET, RESET_MS, claim_link};
pub use links::{HostLink, InvitationError, LinkError, Reset, invitation_url, make_reset_link};
pub(crate) use links::{invitation_resource, invitation_text, reset_text};
pub use passwords::PasswordError;
pub(crate) use passwords::check_chosen;
pub use second_factor::RECOVERY_CODES;
