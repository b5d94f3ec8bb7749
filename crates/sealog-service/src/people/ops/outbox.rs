//! Mails that wait, were sent or were given up, seen by an operator.

use sealog_control::{OpsUserId, OutboxRow};
use serde_json::json;

use super::desk::Desk;
use crate::people::admin::AdminError;
use crate::records::system_chain::actions::{self, SystemAction};

impl Desk {
    /// Has a mail tried again at once. Whether it is one that can be sent.
    pub async fn retry_mail(&self, who: OpsUserId, id: i64) -> Result<bool, AdminError> {
        let row = self.mail(id).await?;
        let records = self.of_mail(who, &actions::MAIL_RETRIED, &row);
        let changed = self.control.retry_notice(id, self.world.now_ms(), records).await?;
        self.told(who, id, changed, "an operator retried a mail");
        Ok(changed)
    }

    /// Has a mail not tried any more. Whether it waited.
    pub async fn give_up_mail(&self, who: OpsUserId, id: i64) -> Result<bool, AdminError> {
        let row = self.mail(id).await?;
        let records = self.of_mail(who, &actions::MAIL_GIVEN_UP, &row);
        let changed = self.control.give_up_notice(id, self.world.now_ms(), records).await?;
        self.told(who, id, changed, "an operator cancelled a mail");
        Ok(changed)
    }

    async fn mail(&self, id: i64) -> Result<OutboxRow, AdminError> {
        self.control.outbox_row(id).await?.ok_or(AdminError::NotFound)
    }

    fn of_mail(
        &self,
        who: OpsUserId,
        action: &SystemAction,
        row: &OutboxRow,
    ) -> Vec<sealog_control::NewRecord> {
        let metadata = json!({ "template": row.template });
        vec![self.record(who, action, &format!("mail/{}", row.id), metadata)]
    }

    fn told(&self, who: OpsUserId, mail: i64, changed: bool, what: &str) {
        self.wake.wake();
        if changed {
            tracing::info!(operator = %who.0, mail, "{what}");
        }
    }
}
