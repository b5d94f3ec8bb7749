//! Browsers that an account has signed in with. Each keeps a random cookie; a sign-in without it, or with one
//! that is not the account's, is from a new browser.

use sealog_control::{Account, Device, DeviceSeen};
use sealog_core::id::{Hash, Uuid};
use sealog_store::StoreError;

use super::accounts::{Accounts, Browser, Failed, Kind};
use super::token::{Token, digest};

/// Browsers that are known of one account.
pub const DEVICES_MAX: u64 = 20;

/// One browser may be several accounts': what is kept does not show that.
fn digest_of(id: Uuid, token: &Token) -> Hash {
    digest(&[&id.0[..], token.0.0.as_bytes()].concat())
}

impl<K: Kind> Accounts<K> {
    /// An address without an account costs the same look-up.
    pub(super) async fn knows_device(
        &self,
        account: Option<&K::Account>,
        device: &Token,
    ) -> Result<bool, Failed> {
        let id = account.map_or(Uuid([0; 16]), |account| account.id().into());
        Ok(self.control.knows_device::<K::Account>(id.into(), digest_of(id, device)).await?)
    }

    /// Notes that an account has signed in whole; returns what the browser is to keep. The very first browser
    /// gives no notice: there is none to compare it with.
    pub(super) async fn note_device(&self, account: &K::Account, browser: &Browser) -> Result<Token, Failed> {
        let now_ms = self.world.now_ms();
        let token = browser.device.clone().unwrap_or_else(|| Token::new(&*self.world));
        let digest = digest_of(account.id().into(), &token);
        let device = Device::<K::Account> {
            account_id: account.id(),
            digest,
            created_at_ms: now_ms,
            last_seen_at_ms: now_ms,
        };
        let notice = K::new_browser_notice(account, digest, now_ms, &browser.visitor);
        match self.control.signed_in_with(device, DEVICES_MAX, notice).await {
            // A full disk keeps nobody out who can make room; the next sign-in notes the browser.
            Err(StoreError::NoRoom) => {}
            Ok(DeviceSeen::New) => {
                let account: Uuid = account.id().into();
                tracing::info!(%account, "sign-in with a new browser");
            }
            seen => drop(seen?),
        }
        Ok(token)
    }
}
