//! Makes the demo's directory: thirty days of an organisation with two projects, sealed by the store with a
//! clock that goes through them.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sealog_control::{Control, Grants, KeyAccess, KeyId, KeyUse, PersonId, Project, Role, ViewKept};
use sealog_core::catalog::{CustomAction, FrameworkSet};
use sealog_core::id::{ChainId, Mode, ProjectId, RequestId, TenantId, Ulid};
use sealog_core::plan::Plan;
use sealog_core::time::iso_ms;
use sealog_service::ingest::geo::Place;
use sealog_service::ingest::quota::Changed;
use sealog_service::ingest::{Client, Endpoint, Ingest, Producer};
use sealog_service::people::admin::keys::KeyInput;
use sealog_service::people::admin::people::{MemberInput, MemberUpdate};
use sealog_service::people::admin::projects::{ProjectInput, ProjectUpdate};
use sealog_service::people::admin::tenants::TenantInput;
use sealog_service::people::admin::views::ViewInput;
use sealog_service::people::admin::{Actor, Admin, AdminError};
use sealog_service::records::system_chain::{Drain, Turns, Wake};
use sealog_store::Store;
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::world::World;
use tokio::task::JoinHandle;

use super::clock::ToldClock;
use super::dice::Dice;
use super::people::{PEOPLE, new_password};
use super::requests::Office;
use super::story::{self, Story, Told};
use super::times;
use super::unsynced::Unsynced;

pub(super) const DAYS: u64 = 30;
const HOUR_MS: u64 = 60 * 60 * 1000;
const DAY_MS: u64 = 24 * HOUR_MS;
/// The demo is the same each time, but for ids, keys and hashes.
const SEED: u64 = 0x5EA1_0615;
const PLAN: &str = "middle";
const PORTAL_FRAMEWORKS: [&str; 4] = ["soc2", "iso27001", "gdpr", "hipaa"];
const BILLING_FRAMEWORKS: [&str; 3] = ["soc2", "pci_dss", "sox"];
/// When things change, in days from the beginning. The files of the stories know of the first two.
const NIS2_DAY: u64 = 8;
const INVOICES_DAY: u64 = 12;
const KEY_DAY: u64 = 16;
/// And in hours: somebody tries passwords, at night.
const ATTACK_HOUR: u64 = 17 * 24 + 3;
const AUDITOR_DAY: u64 = 20;
/// Somebody asks for their data, it is worked on, and somebody else asks.
const ACCESS_DAY: u64 = 22;
const WORK_DAY: u64 = 24;
const ACCOUNTING_DAY: u64 = 29;
const VIEW_DAY: u64 = 10;
/// How long a key works after the last day of the demo.
const KEY_LEFT_MS: u64 = 5 * DAY_MS;
const AUDITOR_LEAVES_MS: u64 = 90 * DAY_MS;
/// One attempt for so many events.
const EVENTS_PER_ATTEMPT: u32 = 200;

/// What was made, as far as others need to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub billing: ProjectId,
}

/// Makes everything in an empty directory, so that it ends at `now_ms`. `progress` is told how many events
/// there are.
pub(super) fn make(
    data_dir: &Path,
    events: u32,
    now_ms: u64,
    progress: &mut dyn FnMut(u32),
) -> Result<Made, String> {
    let begin_ms = now_ms - DAYS * DAY_MS;
    let clock = Arc::new(ToldClock::at(begin_ms));
    let world: Arc<dyn World> = Arc::clone(&clock) as _;
    let options = Options {
        world: Arc::clone(&world),
        disk: Arc::new(Unsynced),
        allow_unsafe_storage: true,
        ..Options::default()
    };
    let store = EmbeddedStore::open(data_dir, &options).map_err(|error| error.to_string())?;
    let control = Control::embedded(&store).map_err(|error| error.to_string())?;
    let (store, control) = (Arc::new(store), Arc::new(control));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let made = runtime.block_on(async {
        let maker = Maker::begin(&store, &control, clock, world).await?;
        let made = Made { billing: maker.billing.project.id };
        maker.tell(begin_ms, events, progress).await?;
        Ok(made)
    });
    // Whatever still runs has the store.
    drop(runtime);
    store.close();
    made
}

struct Maker {
    clock: Arc<ToldClock>,
    control: Arc<Control>,
    admin: Admin,
    ingest: Ingest,
    drain: JoinHandle<()>,
    tenant_id: TenantId,
    portal: Site,
    billing: Site,
    in_plan: FrameworkSet,
    custom: HashMap<String, CustomAction>,
    office: Office,
    developer: PersonId,
    ends_ms: u64,
    /// Which key sends the events of a chain.
    keys: HashMap<(ProjectId, Mode), KeyId>,
    /// Their uses in the last day, by the hour.
    uses: BTreeMap<(u64, KeyId), KeyUse>,
}

/// A project, and who sends its events.
struct Site {
    project: Project,
    live: Arc<Producer>,
    test: Arc<Producer>,
}

fn failed(error: AdminError) -> String {
    match error {
        AdminError::Field(error) => error.to_string(),
        AdminError::NotFound => "what was just made is not there".into(),
        AdminError::Store(error) => error.to_string(),
        AdminError::Internal(problem) => problem,
    }
}

fn ids(frameworks: &[&str]) -> Vec<String> {
    frameworks.iter().map(|id| (*id).to_owned()).collect()
}

impl Maker {
    /// The organisation as it is on the first day.
    async fn begin(
        store: &Arc<EmbeddedStore>,
        control: &Arc<Control>,
        clock: Arc<ToldClock>,
        world: Arc<dyn World>,
    ) -> Result<Maker, String> {
        let plans = Plan::defaults();
        let plan = plans.iter().find(|plan| plan.name == PLAN).expect("one of the defaults");
        let wake = Wake::default();
        let admin = Admin::new(Arc::clone(control), Arc::clone(&world), &plans, wake.clone());
        let store: Arc<dyn Store> = Arc::clone(store) as _;
        let ingest = Ingest::new(Arc::clone(&store), None, Arc::new(Changed::default()));
        let drain = Arc::new(Drain {
            control: Arc::clone(control),
            store: Arc::clone(&store),
            ingest: ingest.clone(),
            world: Arc::clone(&world),
            wake: wake.clone(),
            every: Duration::from_secs(1),
            turns: Turns::default(),
        });
        let tenant = TenantInput {
            name: "Northwind Health".into(),
            plan: Some(PLAN.into()),
            contact_email: Some(PEOPLE[0].0.into()),
            ..TenantInput::default()
        };
        let tenant_id = admin.create_tenant(Actor::Host, tenant).await.map_err(failed)?.id;
        let project = async |name: &str, frameworks: &[&str]| {
            let input = ProjectInput { name: name.into(), frameworks: ids(frameworks) };
            admin.create_project(Actor::Host, tenant_id, input).await.map_err(failed)
        };
        let portal = project("Patient portal", &PORTAL_FRAMEWORKS).await?;
        let billing = project("Billing", &BILLING_FRAMEWORKS).await?;
        let (in_plan, custom) = (plan.frameworks, HashMap::new());
        let mut people = HashMap::new();
        for (email, role) in PEOPLE.into_iter().filter(|(_, role)| *role != Role::Auditor) {
            people.insert(role.as_str(), add_member(&admin, &clock, tenant_id, email, role).await?);
        }
        let person = |role: Role| people.get(role.as_str()).copied().ok_or("the demo has one of each role");
        let whose = (tenant_id, portal.id, person(Role::PrivacyOfficer)?);
        let mut maker = Maker {
            office: Office::new(control, Arc::clone(&store), ingest.clone(), &world, whose, wake.clone()),
            developer: person(Role::Developer)?,
            ends_ms: clock.now_ms() + DAYS * DAY_MS,
            portal: site(portal, in_plan, &custom),
            billing: site(billing, in_plan, &custom),
            drain: tokio::spawn(drain.run()),
            clock,
            control: Arc::clone(control),
            admin,
            ingest,
            tenant_id,
            in_plan,
            custom,
            keys: HashMap::new(),
            uses: BTreeMap::new(),
        };
        for (project_id, name, mode) in [
            (maker.portal.project.id, "portal production", Mode::Live),
            (maker.portal.project.id, "portal staging", Mode::Test),
            (maker.billing.project.id, "billing production", Mode::Live),
            (maker.billing.project.id, "billing CI", Mode::Test),
        ] {
            let key_id = maker.add_key(project_id, name, mode, None).await?;
            maker.keys.insert((project_id, mode), key_id);
        }
        maker.drained().await?;
        Ok(maker)
    }

    /// Thirty days of it.
    async fn tell(mut self, begin_ms: u64, events: u32, progress: &mut dyn FnMut(u32)) -> Result<(), String> {
        let mut dice = Dice::new(SEED);
        let (mut portal, mut billing) =
            (Story::read(include_str!("portal.json")), Story::read(include_str!("billing.json")));
        let mut tests = Story::read(include_str!("billing.json"));
        let attempts = u64::from(events / EVENTS_PER_ATTEMPT);
        let told = events - events / EVENTS_PER_ATTEMPT;
        let mut chapters = Chapter::ALL.into_iter().peekable();
        for (number, at_ms) in times::spread(begin_ms, DAYS * 24, told, &mut dice).into_iter().enumerate() {
            while let Some(chapter) = chapters.next_if(|chapter| chapter.at_ms(begin_ms) <= at_ms) {
                self.clock.set(chapter.at_ms(begin_ms));
                self.change(chapter, attempts).await?;
            }
            let day = (at_ms - begin_ms) / DAY_MS;
            let (site, mode, story) = match dice.below(100) {
                0..58 => (&self.portal, Mode::Live, &mut portal),
                58..92 => (&self.billing, Mode::Live, &mut billing),
                92..97 => (&self.billing, Mode::Test, &mut tests),
                _ => (&self.portal, Mode::Test, &mut portal),
            };
            self.clock.set(at_ms);
            self.send(site, mode, story.tell(day, at_ms, &mut dice)).await?;
            if let Some(&key_id) = self.keys.get(&(site.project.id, mode)) {
                note_use(&mut self.uses, key_id, at_ms);
            }
            progress(u32::try_from(number).unwrap_or(u32::MAX));
        }
        // Hours in their order: those that are too old by the last are removed.
        let uses = std::mem::take(&mut self.uses).into_values();
        for used in uses.filter(|used| used.used_at_ms + DAY_MS > self.ends_ms) {
            self.control.keys_used(vec![used]).await.map_err(|error| error.to_string())?;
        }
        self.drained().await?;
        self.drain.abort();
        let _ = self.drain.await;
        Ok(())
    }

    async fn change(&mut self, chapter: Chapter, attempts: u64) -> Result<(), String> {
        match chapter {
            Chapter::Nis2 => {
                let frameworks = [&PORTAL_FRAMEWORKS[..], &["nis2"]].concat();
                let update = ProjectUpdate { frameworks: Some(ids(&frameworks)), ..ProjectUpdate::default() };
                let updated = self.admin.update_project(Actor::Host, self.portal.project.id, update).await;
                self.portal = site(updated.map_err(failed)?, self.in_plan, &self.custom);
            }
            Chapter::Invoices => {
                let action = CustomAction {
                    action: "invoice.sent".into(),
                    description: Some("An invoice left for a patient or an insurer.".into()),
                    category: Some("payment".into()),
                    severity: Some("info".into()),
                    required_fields: vec!["invoice_id".into(), "amount_cents".into()],
                    optional_fields: vec!["currency".into(), "delivered_by".into()],
                };
                let action = self.admin.create_action(Actor::Host, self.tenant_id, action).await;
                let action = action.map_err(failed)?;
                self.custom.insert(action.action.clone(), action);
                for place in [&mut self.portal, &mut self.billing] {
                    *place = site(place.project.clone(), self.in_plan, &self.custom);
                }
            }
            Chapter::Key => {
                let billing = self.billing.project.id;
                let old = self.add_key(billing, "billing batch job", Mode::Live, None).await?;
                self.clock.set(self.clock.now_ms() + HOUR_MS / 2);
                self.admin.revoke_key(Actor::Host, old).await.map_err(failed)?;
                let ends_at = iso_ms(self.ends_ms + KEY_LEFT_MS);
                let portal = self.portal.project.id;
                self.add_key(portal, "portal reports", Mode::Live, Some(ends_at)).await?;
            }
            Chapter::View => {
                let view = ViewInput {
                    name: "Failed sign-ins".into(),
                    query: "action=user.login_failed".into(),
                    shared_in: Some(self.portal.project.id),
                    is_pinned: true,
                };
                let kept =
                    self.admin.save_view(self.developer, self.tenant_id, view).await.map_err(failed)?;
                if kept != ViewKept::Kept {
                    return Err(format!("the view of the demo was not kept: {kept:?}"));
                }
            }
            Chapter::Access => self.office.access_comes().await?,
            Chapter::Work => self.office.access_is_worked_on().await?,
            Chapter::Accounting => self.office.accounting_comes().await?,
            Chapter::Attack => {
                for number in 1..=attempts {
                    self.clock.set(self.clock.now_ms() + 1700);
                    self.send(&self.portal, Mode::Live, story::attempt(number, number == attempts)).await?;
                }
            }
            Chapter::Auditor => {
                let (email, role) = PEOPLE[4];
                let person_id = add_member(&self.admin, &self.clock, self.tenant_id, email, role).await?;
                let grants = Grants { projects: Some(vec![self.billing.project.id]), ..Grants::default() };
                let ends_at = iso_ms(self.clock.now_ms() + AUDITOR_LEAVES_MS);
                let ends_at = Some(Some(ends_at));
                let update = MemberUpdate { grants: Some(grants), ends_at, ..MemberUpdate::default() };
                let updated = self.admin.update_member(Actor::Host, self.tenant_id, person_id, update).await;
                updated.map_err(failed)?;
            }
        }
        self.drained().await
    }

    async fn add_key(
        &self,
        project_id: ProjectId,
        name: &str,
        mode: Mode,
        expires_at: Option<String>,
    ) -> Result<KeyId, String> {
        let input = KeyInput { name: name.into(), mode: mode.as_str().into(), expires_at, form: None };
        let created = self.admin.create_key(Actor::Host, project_id, input).await;
        created.map(|created| created.key.id).map_err(failed)
    }

    async fn send(&self, site: &Site, mode: Mode, told: Told) -> Result<(), String> {
        let producer = if mode == Mode::Live { &site.live } else { &site.test };
        let request_id = RequestId(Ulid::new(self.clock.now_ms(), self.clock.random80()));
        let place = told
            .place
            .map(|(country, city)| Place { country: Some(country.into()), city: Some(city.into()) });
        let client = Client { place, ..Client::new(told.address) };
        let sent = self.ingest.ingest(producer, Endpoint::Single, None, told.body.into(), client, request_id);
        sent.await.map(drop).map_err(|error| format!("an event of the demo was refused: {error:?}"))
    }

    /// What was changed is in the system chain, at the time of the change.
    async fn drained(&self) -> Result<(), String> {
        while self.control.count_records().await.map_err(|error| error.to_string())? > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }
}

fn note_use(uses: &mut BTreeMap<(u64, KeyId), KeyUse>, key_id: KeyId, used_at_ms: u64) {
    let used =
        uses.entry((used_at_ms / HOUR_MS, key_id)).or_insert(KeyUse { key_id, used_at_ms, requests: 0 });
    (used.used_at_ms, used.requests) = (used_at_ms, used.requests + 1);
}

/// What changes in the course of the days, in this order.
#[derive(Clone, Copy, Debug)]
enum Chapter {
    Nis2,
    View,
    Invoices,
    Key,
    Attack,
    Auditor,
    Access,
    Work,
    Accounting,
}

impl Chapter {
    const ALL: [Chapter; 9] = [
        Chapter::Nis2,
        Chapter::View,
        Chapter::Invoices,
        Chapter::Key,
        Chapter::Attack,
        Chapter::Auditor,
        Chapter::Access,
        Chapter::Work,
        Chapter::Accounting,
    ];

    fn at_ms(self, begin_ms: u64) -> u64 {
        begin_ms
            + match self {
                Chapter::Nis2 => NIS2_DAY * DAY_MS,
                Chapter::View => VIEW_DAY * DAY_MS,
                Chapter::Invoices => INVOICES_DAY * DAY_MS,
                Chapter::Key => KEY_DAY * DAY_MS,
                Chapter::Attack => ATTACK_HOUR * HOUR_MS,
                Chapter::Auditor => AUDITOR_DAY * DAY_MS,
                Chapter::Access => ACCESS_DAY * DAY_MS,
                Chapter::Work => WORK_DAY * DAY_MS,
                Chapter::Accounting => ACCOUNTING_DAY * DAY_MS,
            }
    }
}

async fn add_member(
    admin: &Admin,
    clock: &ToldClock,
    tenant_id: TenantId,
    email: &str,
    role: Role,
) -> Result<PersonId, String> {
    // Nobody ever learns this one: each start sets another.
    let password = new_password(clock);
    let input = MemberInput { email: email.into(), password, role: role.as_str().into() };
    let added = admin.add_member(Actor::Host, tenant_id, input).await;
    added.map(|member| member.person.id).map_err(failed)
}

fn site(project: Project, in_plan: FrameworkSet, custom: &HashMap<String, CustomAction>) -> Site {
    let producer = |mode: Mode| {
        Arc::new(Producer {
            chain: ChainId { tenant_id: project.tenant_id, project_id: project.id, mode },
            enabled: project.frameworks,
            ever_enabled: project.frameworks,
            in_plan,
            custom: custom.clone(),
            // Nobody is to be told about a quota of the past.
            has_quota: false,
        })
    };
    Site { live: producer(Mode::Live), test: producer(Mode::Test), project }
}

#[cfg(test)]
mod tests {
    use sealog_core::catalog::Catalog;

    use super::*;

    #[test]
    fn every_framework_of_the_demo_is_in_its_plan() {
        let plans = Plan::defaults();
        let plan = plans.iter().find(|plan| plan.name == PLAN).unwrap();
        for id in PORTAL_FRAMEWORKS.iter().chain(&BILLING_FRAMEWORKS).chain(&["nis2"]) {
            let index = Catalog::builtin().framework_index(id).unwrap();
            assert!(plan.frameworks.contains(index), "{id}");
        }
    }
}
