-- Control data, version 1. A released version is never changed: the next change is the next file.
--
-- `number` is the order of creation. Ids are the 16 bytes of a UUID, digests the 32 bytes of a SHA-256, times
-- Unix milliseconds. Lists are JSON arrays: they are read and written whole.

-- Tenants, projects, keys -----------------------------------------------------------------------------------

CREATE TABLE tenants (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    name TEXT NOT NULL,
    plan TEXT NOT NULL,
    contact_email TEXT,
    trial_ends_at_ms INTEGER,
    billing_active INTEGER NOT NULL CHECK (billing_active IN (0, 1)),
    rate_limit_rps INTEGER,
    created_at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX tenants_by_trial ON tenants (trial_ends_at_ms, id) WHERE trial_ends_at_ms IS NOT NULL;

CREATE TABLE projects (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    name TEXT NOT NULL,
    rate_limit_rps INTEGER,
    created_at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX projects_of_tenant ON projects (tenant_id);

-- The project of a tenant's system chain. It is no row of `projects`: it has no name, no keys and no
-- frameworks, and no list shows it.
CREATE TABLE system_projects (
    tenant_id BLOB NOT NULL PRIMARY KEY REFERENCES tenants (id),
    project_id BLOB NOT NULL UNIQUE CHECK (length(project_id) = 16)
) STRICT, WITHOUT ROWID;

-- A row for each time that a project enabled a framework. `framework` is its place in the catalog.
CREATE TABLE project_frameworks (
    number INTEGER PRIMARY KEY,
    project_id BLOB NOT NULL REFERENCES projects (id),
    framework INTEGER NOT NULL CHECK (framework BETWEEN 0 AND 31),
    enabled_at_ms INTEGER NOT NULL,
    disabled_at_ms INTEGER
) STRICT;
CREATE INDEX frameworks_of_project ON project_frameworks (project_id, framework);
CREATE UNIQUE INDEX frameworks_enabled_once ON project_frameworks (project_id, framework) WHERE disabled_at_ms IS NULL;

CREATE TABLE keys (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    project_id BLOB NOT NULL REFERENCES projects (id),
    name TEXT NOT NULL,
    mode TEXT NOT NULL CHECK (mode IN ('live', 'test')),
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    prefix TEXT NOT NULL,
    expires_at_ms INTEGER,
    revoked_at_ms INTEGER,
    last_used_at_ms INTEGER,
    created_at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX keys_of_project ON keys (project_id);
CREATE INDEX keys_by_end ON keys (expires_at_ms, id) WHERE expires_at_ms IS NOT NULL;

-- Custom actions. New events cannot use a retired action; its row stays, because stored events name it.
CREATE TABLE actions (
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    action TEXT NOT NULL,
    description TEXT,
    category TEXT,
    severity TEXT,
    required_fields TEXT NOT NULL,
    optional_fields TEXT NOT NULL,
    retired_at_ms INTEGER,
    PRIMARY KEY (tenant_id, action)
) STRICT, WITHOUT ROWID;

-- `value` is JSON.
CREATE TABLE settings (
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (tenant_id, name)
) STRICT, WITHOUT ROWID;

-- People ----------------------------------------------------------------------------------------------------

-- One account per e-mail address; `email_lower` is the form that is compared. `password_hash` is null until
-- the person sets a password.
CREATE TABLE persons (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    email TEXT NOT NULL,
    email_lower TEXT NOT NULL UNIQUE,
    password_hash TEXT,
    verified INTEGER NOT NULL CHECK (verified IN (0, 1)),
    created_at_ms INTEGER NOT NULL
) STRICT;

-- `projects` is a list of ids, or null for all projects.
CREATE TABLE memberships (
    number INTEGER PRIMARY KEY,
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    person_id BLOB NOT NULL REFERENCES persons (id),
    role TEXT NOT NULL CHECK (role IN ('owner', 'admin', 'developer', 'privacy_officer', 'auditor')),
    projects TEXT,
    from_ms INTEGER,
    until_ms INTEGER,
    ends_at_ms INTEGER,
    created_at_ms INTEGER NOT NULL,
    UNIQUE (person_id, tenant_id)
) STRICT;
CREATE INDEX memberships_of_tenant ON memberships (tenant_id);
CREATE INDEX memberships_by_end ON memberships (ends_at_ms, number) WHERE ends_at_ms IS NOT NULL;

-- A session ends at `expires_at_ms`, or after `idle_ms` without use. While it `needs_code`, it opens only the
-- page that asks for the code.
CREATE TABLE sessions (
    token_digest BLOB NOT NULL PRIMARY KEY CHECK (length(token_digest) = 32),
    person_id BLOB NOT NULL REFERENCES persons (id),
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    last_seen_at_ms INTEGER NOT NULL DEFAULT 0,
    idle_ms INTEGER NOT NULL DEFAULT 0,
    needs_code INTEGER NOT NULL DEFAULT 0 CHECK (needs_code IN (0, 1)),
    address TEXT,
    user_agent TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_by_end ON sessions (expires_at_ms);
CREATE INDEX sessions_of_person ON sessions (person_id);

-- Links that work once. A mailed link has no digest here: its secret is made when the mail is sent, and the
-- outbox keeps the digest under the key `link/ID`. `projects` is as in `memberships`.
CREATE TABLE links (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    digest BLOB UNIQUE CHECK (length(digest) = 32),
    purpose TEXT NOT NULL CHECK (purpose IN ('claim', 'reset', 'invitation')),
    person_id BLOB REFERENCES persons (id),
    tenant_id BLOB REFERENCES tenants (id),
    email TEXT,
    email_lower TEXT,
    role TEXT CHECK (role IN ('owner', 'admin', 'developer', 'privacy_officer', 'auditor')),
    projects TEXT,
    from_ms INTEGER,
    until_ms INTEGER,
    ends_at_ms INTEGER,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    invited_by BLOB REFERENCES persons (id),
    CHECK ((purpose = 'invitation') = (email IS NOT NULL AND email_lower IS NOT NULL AND role IS NOT NULL)),
    CHECK ((purpose = 'invitation') = (person_id IS NULL)),
    CHECK ((purpose = 'reset') = (tenant_id IS NULL))
) STRICT;
CREATE INDEX links_of_tenant ON links (tenant_id);
CREATE INDEX links_of_person ON links (person_id);
CREATE INDEX links_by_end ON links (expires_at_ms);

-- `last_step` is the newest time step with a used code. It is null until the person enters a first code.
CREATE TABLE authenticators (
    person_id BLOB NOT NULL PRIMARY KEY REFERENCES persons (id),
    secret BLOB NOT NULL,
    last_step INTEGER,
    created_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A row for each unused code.
CREATE TABLE recovery_codes (
    person_id BLOB NOT NULL REFERENCES persons (id),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    PRIMARY KEY (person_id, digest)
) STRICT, WITHOUT ROWID;

-- The digest of the cookie of each browser that the person signed in with.
CREATE TABLE devices (
    person_id BLOB NOT NULL REFERENCES persons (id),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    created_at_ms INTEGER NOT NULL,
    last_seen_at_ms INTEGER NOT NULL,
    PRIMARY KEY (person_id, digest)
) STRICT, WITHOUT ROWID;

-- Sign-in attempts, by the digest of an account or of an address.
CREATE TABLE attempts (
    subject BLOB NOT NULL PRIMARY KEY CHECK (length(subject) = 32),
    attempts INTEGER NOT NULL,
    ends_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX attempts_by_end ON attempts (ends_at_ms);

-- Failed sign-ins of an account, until the system chain records their counts.
CREATE TABLE failures (
    person_id BLOB NOT NULL PRIMARY KEY REFERENCES persons (id),
    passwords INTEGER NOT NULL,
    codes INTEGER NOT NULL,
    began_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX failures_by_begin ON failures (began_at_ms);

-- `query` is the query string of the events page. `shared_in` is the project whose readers see the view. It
-- can be the project of a system chain, so it does not reference `projects`.
CREATE TABLE saved_views (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    person_id BLOB NOT NULL REFERENCES persons (id),
    name TEXT NOT NULL,
    query TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    shared_in BLOB CHECK (shared_in IS NULL OR length(shared_in) = 16),
    is_pinned INTEGER NOT NULL DEFAULT 0 CHECK (is_pinned IN (0, 1)),
    UNIQUE (tenant_id, person_id, name)
) STRICT;

-- Operators of the instance. They belong to no tenant. A removed operator keeps the row, because events name
-- its id, but no password, secret or link. The authenticator counts once `last_step` is not null.
CREATE TABLE ops_users (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    email TEXT NOT NULL,
    email_lower TEXT NOT NULL,
    password_hash TEXT,
    secret BLOB,
    last_step INTEGER,
    link_digest BLOB UNIQUE CHECK (length(link_digest) = 32),
    link_expires_at_ms INTEGER,
    created_at_ms INTEGER NOT NULL,
    removed_at_ms INTEGER
) STRICT;
CREATE UNIQUE INDEX ops_users_by_email ON ops_users (email_lower) WHERE removed_at_ms IS NULL;

CREATE TABLE ops_sessions (
    token_digest BLOB NOT NULL PRIMARY KEY CHECK (length(token_digest) = 32),
    user_id BLOB NOT NULL REFERENCES ops_users (id),
    needs_code INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    last_seen_at_ms INTEGER NOT NULL,
    idle_ms INTEGER NOT NULL,
    address TEXT,
    user_agent TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX ops_sessions_of_user ON ops_sessions (user_id);

-- The digest of the cookie that a browser has kept since an operator signed in with it.
CREATE TABLE ops_devices (
    user_id BLOB NOT NULL REFERENCES ops_users (id),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    created_at_ms INTEGER NOT NULL,
    last_seen_at_ms INTEGER NOT NULL,
    PRIMARY KEY (user_id, digest)
) STRICT, WITHOUT ROWID;

-- Notices, jobs, exports ------------------------------------------------------------------------------------

-- A notice waits until it is sent or given up. 90 days later its address and parameters are erased; the row
-- stays, so that its key stays taken.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY,
    notice_key TEXT NOT NULL UNIQUE,
    tenant_id BLOB REFERENCES tenants (id),
    person_id BLOB REFERENCES persons (id),
    recipient TEXT,
    template TEXT NOT NULL,
    parameters TEXT,
    secret_digest BLOB UNIQUE CHECK (length(secret_digest) = 32),
    created_at_ms INTEGER NOT NULL,
    due_at_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    last_failure TEXT,
    sent_at_ms INTEGER,
    given_up_at_ms INTEGER,
    CHECK (sent_at_ms IS NULL OR given_up_at_ms IS NULL),
    CHECK (sent_at_ms IS NOT NULL OR given_up_at_ms IS NOT NULL OR (recipient IS NOT NULL AND parameters IS NOT NULL))
) STRICT;
CREATE INDEX outbox_waiting ON outbox (due_at_ms) WHERE sent_at_ms IS NULL AND given_up_at_ms IS NULL;
CREATE INDEX outbox_with_text ON outbox (sent_at_ms) WHERE sent_at_ms IS NOT NULL AND parameters IS NOT NULL;
CREATE INDEX outbox_given_up ON outbox (given_up_at_ms) WHERE given_up_at_ms IS NOT NULL AND parameters IS NOT NULL;
CREATE INDEX outbox_of_person ON outbox (person_id, created_at_ms) WHERE person_id IS NOT NULL;

-- A row for each optional notice that a member turned off.
CREATE TABLE muted_notices (
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    person_id BLOB NOT NULL REFERENCES persons (id),
    notice TEXT NOT NULL,
    PRIMARY KEY (tenant_id, notice, person_id)
) STRICT, WITHOUT ROWID;

-- `claim` counts the claims of a job, and `due_at_ms` is when a node can claim it again. `held` is true while
-- a node has the job: if another node claims it then, `deaths` counts that the first one died. The job is
-- given up by `deaths`, and by the time since `failing_since_ms`.
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    kind TEXT NOT NULL,
    tenant_id BLOB REFERENCES tenants (id),
    person_id BLOB REFERENCES persons (id),
    subject TEXT,
    parameters TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'done', 'failed', 'cancelled')),
    position BLOB,
    claim INTEGER NOT NULL,
    due_at_ms INTEGER NOT NULL,
    cause TEXT,
    created_at_ms INTEGER NOT NULL,
    ended_at_ms INTEGER,
    failing_since_ms INTEGER,
    deaths INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1))
) STRICT;
CREATE INDEX jobs_of_tenant ON jobs (tenant_id, kind, subject);
CREATE INDEX jobs_waiting ON jobs (kind, due_at_ms) WHERE ended_at_ms IS NULL;

-- A frozen query. `project_id` can be the project of a system chain. The first complete download notes its
-- totals.
CREATE TABLE exports (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    project_id BLOB NOT NULL CHECK (length(project_id) = 16),
    mode TEXT NOT NULL CHECK (mode IN ('live', 'test')),
    person_id BLOB NOT NULL REFERENCES persons (id),
    format TEXT NOT NULL,
    query TEXT NOT NULL,
    from_ms INTEGER,
    until_ms INTEGER,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    row_count INTEGER,
    byte_count INTEGER,
    sha256 BLOB CHECK (length(sha256) = 32),
    completed_at_ms INTEGER
) STRICT;
CREATE INDEX exports_of_chain ON exports (tenant_id, project_id, mode);

-- Records that wait for the system chain, in the order of the changes. A row is removed once its record is in
-- the chain.
CREATE TABLE pending (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    draft TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX pending_of_tenant ON pending (tenant_id, number);

-- Cases: requests of data subjects --------------------------------------------------------------------------

-- Every write names the `revision` that it read, and increments it. `due_day` is the last day for an answer,
-- in days since 1970, as last calculated.
CREATE TABLE cases (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    case_number INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('received', 'identity_check', 'in_progress', 'review', 'approved', 'delivered', 'closed', 'paused', 'extended', 'refused', 'withdrawn')),
    state_before_pause TEXT,
    regime TEXT NOT NULL,
    custom_days INTEGER,
    custom_extension_days INTEGER,
    request_type TEXT NOT NULL,
    requester TEXT NOT NULL,
    contact TEXT NOT NULL,
    wrote TEXT NOT NULL,
    channel TEXT NOT NULL,
    received_at_ms INTEGER NOT NULL,
    assignee BLOB REFERENCES persons (id),
    projects TEXT NOT NULL,
    from_ms INTEGER,
    until_ms INTEGER,
    identifiers TEXT NOT NULL,
    identity_method TEXT,
    identity_outcome TEXT,
    identity_by BLOB REFERENCES persons (id),
    identity_at_ms INTEGER,
    pauses TEXT NOT NULL,
    extension_reason TEXT,
    extension_announced_at_ms INTEGER,
    confirmed_at_ms INTEGER,
    answer TEXT CHECK (answer IN ('fulfilled', 'refused', 'withdrawn')),
    answered_at_ms INTEGER,
    answered_how TEXT,
    refusal_ground TEXT,
    due_day INTEGER NOT NULL,
    created_by BLOB NOT NULL REFERENCES persons (id),
    created_at_ms INTEGER NOT NULL,
    changed_at_ms INTEGER NOT NULL,
    closed_at_ms INTEGER,
    UNIQUE (tenant_id, case_number)
) STRICT;
CREATE INDEX cases_by_due ON cases (tenant_id, due_day) WHERE closed_at_ms IS NULL;
CREATE INDEX cases_unanswered ON cases (number) WHERE answered_at_ms IS NULL;
CREATE INDEX cases_by_receipt ON cases (tenant_id, received_at_ms);

-- The history of a case: a row for each revision, never changed. The chain has `digest`, the SHA-256 of salt
-- and note: without the salt, the digest does not confirm a guess of the note.
CREATE TABLE case_entries (
    number INTEGER PRIMARY KEY,
    case_id BLOB NOT NULL REFERENCES cases (id),
    revision INTEGER NOT NULL,
    person_id BLOB REFERENCES persons (id),
    at_ms INTEGER NOT NULL,
    from_state TEXT,
    to_state TEXT,
    what TEXT NOT NULL,
    note TEXT NOT NULL,
    salt BLOB NOT NULL CHECK (length(salt) = 32),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    differences TEXT NOT NULL,
    UNIQUE (case_id, revision)
) STRICT;

-- Events that a case adds to the live chains of its projects. `key` is the idempotency key.
CREATE TABLE case_events (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    case_id BLOB NOT NULL REFERENCES cases (id),
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    project_id BLOB NOT NULL REFERENCES projects (id),
    key TEXT NOT NULL,
    action TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    due_at_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    cause TEXT,
    chain_seq INTEGER,
    ended_at_ms INTEGER,
    UNIQUE (project_id, key)
) STRICT;
CREATE INDEX case_events_waiting ON case_events (due_at_ms) WHERE ended_at_ms IS NULL;
CREATE INDEX case_events_of_case ON case_events (case_id);

-- `parameters` are frozen at the start. Each piece writes `position` together with the events that it found.
CREATE TABLE case_searches (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    case_id BLOB NOT NULL REFERENCES cases (id),
    job_id BLOB NOT NULL REFERENCES jobs (id),
    person_id BLOB NOT NULL REFERENCES persons (id),
    parameters TEXT NOT NULL,
    position TEXT,
    looked INTEGER NOT NULL,
    events INTEGER NOT NULL,
    by_person INTEGER NOT NULL,
    on_person INTEGER NOT NULL,
    mentions INTEGER NOT NULL,
    outcome TEXT CHECK (outcome IN ('done', 'too_many')),
    created_at_ms INTEGER NOT NULL,
    ended_at_ms INTEGER
) STRICT;
CREATE INDEX case_searches_of_case ON case_searches (case_id);

-- `found` has a bit for each of the three searches. `masks` are the paths that a reviewer chose, or null for
-- the suggested ones.
CREATE TABLE case_found (
    search_id BLOB NOT NULL REFERENCES case_searches (id),
    project_id BLOB NOT NULL,
    chain_seq INTEGER NOT NULL,
    log_id TEXT NOT NULL,
    timestamp_ms INTEGER NOT NULL,
    action TEXT NOT NULL,
    category TEXT,
    found INTEGER NOT NULL,
    flags INTEGER NOT NULL,
    decision TEXT CHECK (decision IN ('include', 'exclude')),
    reason TEXT,
    masks TEXT,
    decided_by BLOB REFERENCES persons (id),
    decided_at_ms INTEGER,
    revision INTEGER NOT NULL,
    PRIMARY KEY (search_id, project_id, chain_seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX case_found_by_time ON case_found (search_id, timestamp_ms);

-- Values that belong to the person, that a package must not contain, or that a reviewer decided to show.
CREATE TABLE case_values (
    search_id BLOB NOT NULL REFERENCES case_searches (id),
    value TEXT NOT NULL,
    kind TEXT NOT NULL,
    PRIMARY KEY (search_id, value, kind)
) STRICT, WITHOUT ROWID;

-- `attempt` names the pieces that are the package. `review` sums up the decisions at the time of the build.
CREATE TABLE case_packages (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    case_id BLOB NOT NULL REFERENCES cases (id),
    search_id BLOB NOT NULL REFERENCES case_searches (id),
    job_id BLOB NOT NULL REFERENCES jobs (id),
    person_id BLOB NOT NULL REFERENCES persons (id),
    review INTEGER NOT NULL,
    events INTEGER NOT NULL,
    attempt INTEGER,
    byte_count INTEGER,
    sha256 BLOB CHECK (length(sha256) = 32),
    manifest TEXT,
    entries TEXT,
    created_at_ms INTEGER NOT NULL,
    built_at_ms INTEGER,
    expires_at_ms INTEGER NOT NULL,
    dropped_at_ms INTEGER
) STRICT;
CREATE INDEX case_packages_of_case ON case_packages (case_id);
CREATE INDEX case_packages_kept ON case_packages (expires_at_ms) WHERE dropped_at_ms IS NULL;

CREATE TABLE case_package_pieces (
    package_id BLOB NOT NULL REFERENCES case_packages (id),
    attempt INTEGER NOT NULL,
    piece INTEGER NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (package_id, attempt, piece)
) STRICT;

CREATE TABLE case_letters (
    case_id BLOB NOT NULL REFERENCES cases (id),
    kind TEXT NOT NULL CHECK (kind IN ('cover', 'response', 'refusal', 'extension')),
    body TEXT NOT NULL,
    revision INTEGER NOT NULL,
    person_id BLOB NOT NULL REFERENCES persons (id),
    changed_at_ms INTEGER NOT NULL,
    PRIMARY KEY (case_id, kind)
) STRICT, WITHOUT ROWID;
