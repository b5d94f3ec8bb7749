//! The schema: numbered steps, forward only, one node at a time.

use tokio::runtime::Builder;

use super::error::OpenError;
use super::options::Options;
use super::pool::Session;
use super::url::Target;

/// Tables that belong together, and the steps that make them. A step that was released is never changed.
#[derive(Clone, Debug)]
pub struct Schema {
    pub name: String,
    pub steps: Vec<String>,
    /// Statements that give [`NODE`] what it needs in the schema.
    pub rights: String,
}

/// The role that `roles.sql` makes for servers, as it is written in [`Schema::rights`].
const NODE: &str = "sealog_node";
/// What `roles.sql` grants stands there alone.
const ROLES: &str = include_str!("../../../../deploy/postgresql/roles.sql");

/// Whoever changes the schema holds this advisory lock; the number stands for "sealog" and nothing else.
pub(super) const LOCK: i64 = 0x7365_616c_6f67;

impl Schema {
    /// The store's own.
    pub(super) fn of_events() -> Schema {
        let steps = [include_str!("migrations/0001.sql")];
        let name = "sealog";
        Schema { name: name.into(), steps: steps.map(str::to_owned).into(), rights: rights_in(name) }
    }

    /// The version that the program needs.
    fn wanted(&self) -> i64 {
        i64::try_from(self.steps.len()).expect("there are few")
    }
}

/// The statements of `roles.sql` between the line that begins the rights in a schema and the line that ends
/// them.
pub fn rights_in(schema: &str) -> String {
    let begin = format!("-- Rights in {schema}:");
    let lines = ROLES.lines().skip_while(|line| !line.trim().starts_with(&begin));
    let lines = lines.take_while(|line| !line.trim().starts_with(&format!("-- End of rights in {schema}.")));
    lines.collect::<Vec<_>>().join("\n")
}

/// The version of the tables of events that this program works with.
pub fn schema_version() -> usize {
    Schema::of_events().steps.len()
}

/// The version of the schema that is there; 0 for none.
async fn version(session: &Session, schema: &Schema) -> Result<i64, OpenError> {
    // Not `to_regclass`: that may answer from what the session knew before it waited for the lock.
    let name = &schema.name;
    let made = format!(
        "SELECT count(*) > 0 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = '{name}' AND c.relname = 'migrations'"
    );
    let made: bool = session.client.query_typed(&made, &[]).await.map_err(failed)?[0].get(0);
    if !made {
        return Ok(0);
    }
    let version = format!("SELECT coalesce(max(version), 0)::bigint FROM {name}.migrations");
    Ok(session.client.query_typed(&version, &[]).await.map_err(failed)?[0].get(0))
}

/// The program that has made the last step, by the comment that it left: an earlier one, which knows nothing
/// of later tables, can read that.
async fn program(session: &Session, schema: &Schema) -> Result<Option<String>, OpenError> {
    let comment = format!(
        "SELECT (SELECT obj_description(c.oid, 'pg_class') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = '{}' AND c.relname = 'migrations')",
        schema.name
    );
    Ok(session.client.query_typed(&comment, &[]).await.map_err(failed)?[0].get(0))
}

/// What a start finds of a schema.
#[derive(Clone, Debug)]
pub struct SchemaState {
    pub name: String,
    /// Steps that were made, and that this program knows.
    pub made: i64,
    pub wanted: i64,
    /// The program that has made the last of them, if that is known.
    pub program: Option<String>,
    /// Whether this role may make those that are missing.
    may_migrate: bool,
}

impl SchemaState {
    /// Why no server starts on it. A server makes the tables of a database that has none, and changes none
    /// that are there: when that is done, and whether there is a backup, is the operator's to say (`sealog
    /// migrate`).
    pub fn refusal(&self) -> Option<OpenError> {
        let SchemaState { made, wanted, may_migrate, .. } = *self;
        let is_refused = made > wanted || (made < wanted && (made > 0 || !may_migrate));
        is_refused.then(|| OpenError::Schema { found: made, wanted, program: self.program.clone() })
    }
}

/// Looks at a schema without a change to it.
pub(super) async fn state(session: &Session, schema: &Schema) -> Result<SchemaState, OpenError> {
    Ok(SchemaState {
        name: schema.name.clone(),
        made: version(session, schema).await?,
        wanted: schema.wanted(),
        program: program(session, schema).await?,
        may_migrate: may_migrate(session, schema).await?,
    })
}

/// Makes the schema where there is none and this role may, and refuses to go on with another version than the
/// program's.
pub(super) async fn prepare(session: &Session, schema: &Schema) -> Result<(), OpenError> {
    let state = state(session, schema).await?;
    match state.refusal() {
        Some(refusal) => Err(refusal),
        None if state.made == state.wanted => Ok(()),
        None => {
            let steps = run(session, schema).await?;
            if steps > 0 {
                tracing::info!(schema = schema.name, steps, "created the tables of this schema");
            }
            Ok(())
        }
    }
}

/// Makes the steps that are missing and says how many there were.
pub(super) async fn run(session: &Session, schema: &Schema) -> Result<usize, OpenError> {
    let mut made = 0;
    loop {
        session.client.batch_execute("BEGIN").await.map_err(failed)?;
        match step(session, schema).await {
            Ok(steps @ 1..) => made += steps,
            Ok(0) => {
                // Still with the lock: of two that grant the same at once, one would fail.
                let granted = grant(session, schema).await;
                let end = if granted.is_ok() { "COMMIT" } else { "ROLLBACK" };
                session.client.batch_execute(end).await.map_err(failed)?;
                return granted.map(|()| made);
            }
            Err(error) => {
                let _ = session.client.batch_execute("ROLLBACK").await;
                return Err(error);
            }
        }
    }
}

/// Gives those roles what they need in the schema, also of tables that were just made, that can add events
/// and do not own them. Where `roles.sql` was never run there is none. Whether or not a step was made: a
/// crash may have come between.
async fn grant(session: &Session, schema: &Schema) -> Result<(), OpenError> {
    if !may_migrate(session, schema).await? {
        return Ok(());
    }
    for role in node_roles(session).await? {
        let granted = session.client.batch_execute(&schema.rights.replace(NODE, &role)).await;
        granted.map_err(|error| {
            let cause = super::error::explain(&error);
            OpenError::Database(format!(
                "the steps ran, but granting rights to {role} in the schema {} failed: {cause}; run deploy/postgresql/roles.sql",
                schema.name
            ))
        })?;
    }
    Ok(())
}

/// Roles that can add events and do not own the tables, as SQL names them.
pub(super) async fn node_roles(session: &Session) -> Result<Vec<String>, OpenError> {
    let sql = "SELECT DISTINCT quote_ident(pg_get_userbyid(acl.grantee)) FROM pg_class c
                   JOIN pg_namespace n ON n.oid = c.relnamespace, aclexplode(c.relacl) acl
               WHERE n.nspname = 'sealog' AND c.relname = 'events' AND acl.privilege_type = 'INSERT'
                   AND acl.grantee <> 0 AND acl.grantee <> c.relowner";
    Ok(session.client.query_typed(sql, &[]).await.map_err(failed)?.iter().map(|row| row.get(0)).collect())
}

/// Begins a transaction that has the lock. It is not ended by anyone but whoever drops the session.
pub(super) async fn lock(session: &Session) -> Result<(), tokio_postgres::Error> {
    session.client.batch_execute("BEGIN").await?;
    wait_for_lock(session).await
}

/// Others wait here, as long as it takes, then find that there is nothing left to do.
async fn wait_for_lock(session: &Session) -> Result<(), tokio_postgres::Error> {
    let sql = format!(
        "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0;
         SELECT pg_advisory_xact_lock({LOCK})"
    );
    session.client.batch_execute(&sql).await
}

/// Whether the tables of events are spread over a Citus cluster.
pub(super) async fn is_distributed(session: &Session) -> Result<bool, OpenError> {
    let citus = "SELECT count(*) > 0 FROM pg_extension WHERE extname = 'citus'";
    let citus: bool = session.client.query_typed(citus, &[]).await.map_err(failed)?[0].get(0);
    if !citus {
        return Ok(false);
    }
    // A catalog of Citus, which is not there without it.
    let events = "SELECT count(*) > 0 FROM pg_catalog.pg_dist_partition WHERE logicalrelid = 'sealog.events'::regclass";
    Ok(session.client.query_typed(events, &[]).await.map_err(failed)?[0].get(0))
}

/// One step in the transaction that was begun, and its commit; 0 when there is none left. The first is all of
/// them: whoever looks at a new database sees no tables or all of them, and never takes half of them for an
/// earlier version.
async fn step(session: &Session, schema: &Schema) -> Result<usize, OpenError> {
    wait_for_lock(session).await.map_err(failed)?;
    let (found, wanted, name) = (version(session, schema).await?, schema.wanted(), &schema.name);
    if found > wanted {
        let program = program(session, schema).await?;
        return Err(OpenError::Schema { found, wanted, program });
    }
    let missing = schema.steps.get(usize::try_from(found).unwrap_or(usize::MAX)..).unwrap_or_default();
    let steps = if found == 0 { missing } else { &missing[..missing.len().min(1)] };
    if steps.is_empty() {
        return Ok(0);
    }
    if found == 0 {
        let made = format!(
            "CREATE SCHEMA IF NOT EXISTS {name};
             CREATE TABLE {name}.migrations (version integer PRIMARY KEY, made_at timestamptz NOT NULL DEFAULT now());"
        );
        session.client.batch_execute(&made).await.map_err(failed)?;
    }
    for (number, sql) in (found + 1..).zip(steps) {
        session.client.batch_execute(sql).await.map_err(failed)?;
        let count = format!("INSERT INTO {name}.migrations (version) VALUES ({number})");
        session.client.batch_execute(&count).await.map_err(failed)?;
    }
    let wrote = concat!("Sealog ", env!("CARGO_PKG_VERSION"));
    let comment = format!("COMMENT ON TABLE {name}.migrations IS '{wrote}'");
    session.client.batch_execute(&comment).await.map_err(failed)?;
    session.client.batch_execute("COMMIT").await.map_err(failed)?;
    Ok(steps.len())
}

/// A role that owns the schema, or may create it.
async fn may_migrate(session: &Session, schema: &Schema) -> Result<bool, OpenError> {
    let sql = format!(
        "SELECT coalesce((SELECT pg_has_role(current_user, nspowner, 'USAGE') FROM pg_namespace WHERE nspname = '{}'),
                         has_database_privilege(current_database(), 'CREATE'))",
        schema.name
    );
    Ok(session.client.query_typed(&sql, &[]).await.map_err(failed)?[0].get(0))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: tokio_postgres::Error) -> OpenError {
    OpenError::of(&error)
}

/// Makes or updates the schema as `sealog migrate` does; how many steps that took.
pub fn migrate(url: &str) -> Result<usize, OpenError> {
    with_session(url, async |session| run(session, &Schema::of_events()).await)
}

/// For commands that open no store. On Citus they work at the coordinator.
pub(super) fn with_session<T>(
    url: &str,
    act: impl AsyncFnOnce(&Session) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let target = Target::parse(url, &Options::default()).map_err(OpenError::Url)?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| OpenError::Database(error.to_string()))?;
    runtime.block_on(async { act(&Session::open(&target).await?).await })
}
