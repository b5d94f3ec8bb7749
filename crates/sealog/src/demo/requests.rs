//! What the privacy officer of the demo has on the desk: a request that is worked on, and one that has just
//! come in.

use std::sync::Arc;
use std::time::Duration;

use sealog_cases::desk::Seen;
use sealog_cases::{CaseDesk, CaseError, CaseForward, IdentifierInput, IntakeInput, Move, ScopeInput};
use sealog_control::Control;
use sealog_control::{Case, PersonId};
use sealog_core::id::{ProjectId, TenantId};
use sealog_core::plan::Plan;
use sealog_core::time::iso_ms;
use sealog_service::ingest::Ingest;
use sealog_service::records::system_chain::Wake;
use sealog_store::Store;
use sealog_store::world::World;

use super::story::first_id;

pub(super) struct Office {
    desk: CaseDesk,
    forward: CaseForward,
    world: Arc<dyn World>,
    pub officer: PersonId,
    tenant_id: TenantId,
    project_id: ProjectId,
    /// The request that is worked on.
    access: Option<Case>,
}

/// What somebody asks for, and how.
struct Asked {
    regime: &'static str,
    requester: &'static str,
    contact: &'static str,
    wrote: &'static str,
    channel: &'static str,
}

const ACCESS: Asked = Asked {
    regime: "gdpr",
    requester: "Mara Lindqvist",
    contact: "mara.lindqvist@mail.example",
    wrote: "Please send me everything that you have about me, and tell me who has looked at my records since the summer.",
    channel: "email",
};
const ACCOUNTING: Asked = Asked {
    regime: "hipaa_accounting",
    requester: "Jonas Petersen",
    contact: "Harbour Street 4, Hamburg",
    wrote: "I ask for an accounting of disclosures of my health information.",
    channel: "letter",
};

impl Office {
    pub(super) fn new(
        control: &Arc<Control>,
        store: Arc<dyn Store>,
        ingest: Ingest,
        world: &Arc<dyn World>,
        (tenant_id, project_id, officer): (TenantId, ProjectId, PersonId),
        records: Wake,
    ) -> Office {
        let forward = CaseForward {
            events: Arc::clone(control) as _,
            control: Arc::clone(control),
            store,
            ingest,
            world: Arc::clone(world),
            plans: Plan::defaults(),
            wake: Wake::default(),
            every: Duration::from_secs(1),
        };
        let desk = CaseDesk::new(control, Arc::clone(world), records, Wake::default());
        Office { desk, forward, world: Arc::clone(world), officer, tenant_id, project_id, access: None }
    }

    /// Somebody asks what is there, and is asked who they are.
    pub(super) async fn access_comes(&mut self) -> Result<(), String> {
        let case = self.open(&ACCESS).await?;
        let case =
            self.step(&case, "identity_check", "A code went to the address that the portal has.").await?;
        self.access = Some(case);
        self.told().await
    }

    /// The answer came, and the search can begin.
    pub(super) async fn access_is_worked_on(&mut self) -> Result<(), String> {
        let Some(case) = self.access.take() else { return Ok(()) };
        let note = "The code came back from the same address.";
        let checked = self.desk.check_identity(self.seen(&case), "email_challenge", "confirmed", note).await;
        let case = self
            .step(&checked.map_err(|error| failed(&error))?, "in_progress", "Identity is confirmed.")
            .await?;
        let patient = first_id("pat");
        let case = self.add(&case, "resource", &format!("patient/{patient}"), "Patient index").await?;
        self.access = Some(self.add(&case, "actor_id", &patient, "Portal account").await?);
        self.told().await
    }

    /// Somebody asks whom it was given to; nobody has looked at it yet.
    pub(super) async fn accounting_comes(&mut self) -> Result<(), String> {
        self.open(&ACCOUNTING).await?;
        self.told().await
    }

    async fn open(&self, asked: &Asked) -> Result<Case, String> {
        let intake = IntakeInput {
            regime: asked.regime.into(),
            request_type: "access".into(),
            requester: asked.requester.into(),
            contact: asked.contact.into(),
            wrote: asked.wrote.into(),
            channel: asked.channel.into(),
            received: iso_ms(self.world.now_ms())[..10].into(),
            assignee: self.officer.0.to_string(),
            ..IntakeInput::default()
        };
        let scope = ScopeInput { projects: vec![self.project_id.to_string()], ..ScopeInput::default() };
        let note = "Entered from the privacy mailbox.";
        self.desk
            .open(self.officer, self.tenant_id, &intake, &scope, note)
            .await
            .map_err(|error| failed(&error))
    }

    async fn step(&self, case: &Case, to: &str, note: &str) -> Result<Case, String> {
        let step = Move { to: to.into(), note: note.into(), ..Move::default() };
        self.desk.step(self.seen(case), &step).await.map_err(|error| failed(&error))
    }

    async fn add(&self, case: &Case, kind: &str, value: &str, source: &str) -> Result<Case, String> {
        let input = IdentifierInput {
            kind: kind.into(),
            path: String::new(),
            value: value.into(),
            source: source.into(),
        };
        self.desk.add_identifier(self.seen(case), &input).await.map_err(|error| failed(&error))
    }

    fn seen(&self, case: &Case) -> Seen {
        Seen { tenant_id: case.tenant_id, id: case.id, revision: case.revision, person_id: self.officer }
    }

    /// The project hears of it at the time of the step.
    async fn told(&self) -> Result<(), String> {
        while self.forward.round().await.map_err(|error| error.to_string())? > 0 {}
        Ok(())
    }
}

fn failed(error: &CaseError) -> String {
    format!("a request of the demo: {error:?}")
}
