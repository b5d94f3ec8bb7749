-- Control data, version 1. A released version is never changed: the next change is the next file.
--
-- `{table}` is a table of this schema. `number` is the order of creation. Digests are the 32 bytes of a
-- SHA-256, times Unix milliseconds. Lists are JSON arrays: they are read and written whole.

-- Tenants, projects, keys -----------------------------------------------------------------------------------

-- `version` is the store's version at the last change of the tenant's data, for the caches of other nodes.
CREATE TABLE {tenants} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    name text NOT NULL,
    plan text NOT NULL,
    contact_email text,
    trial_ends_at_ms bigint,
    billing_active boolean NOT NULL,
    rate_limit_rps bigint,
    created_at_ms bigint NOT NULL,
    version bigint NOT NULL DEFAULT 0
);
CREATE INDEX tenants_by_version ON {tenants} (version);
CREATE INDEX tenants_by_trial ON {tenants} (trial_ends_at_ms, id) WHERE trial_ends_at_ms IS NOT NULL;

CREATE TABLE {projects} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    name text NOT NULL,
    rate_limit_rps bigint,
    created_at_ms bigint NOT NULL
);
CREATE INDEX projects_of_tenant ON {projects} (tenant_id);

-- The project of a tenant's system chain. It is no row of `projects`: it has no name, no keys and no
-- frameworks, and no list shows it.
CREATE TABLE {system_projects} (
    tenant_id uuid PRIMARY KEY REFERENCES {tenants} (id),
    project_id uuid NOT NULL UNIQUE
);

-- A row for each time that a project enabled a framework. `framework` is its place in the catalog.
CREATE TABLE {project_frameworks} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project_id uuid NOT NULL REFERENCES {projects} (id),
    framework integer NOT NULL CHECK (framework BETWEEN 0 AND 31),
    enabled_at_ms bigint NOT NULL,
    disabled_at_ms bigint
);
CREATE INDEX frameworks_of_project ON {project_frameworks} (project_id, framework);
CREATE UNIQUE INDEX frameworks_enabled_once ON {project_frameworks} (project_id, framework) WHERE disabled_at_ms IS NULL;

CREATE TABLE {keys} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    project_id uuid NOT NULL REFERENCES {projects} (id),
    name text NOT NULL,
    mode text NOT NULL CHECK (mode IN ('live', 'test')),
    digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    prefix text NOT NULL,
    expires_at_ms bigint,
    revoked_at_ms bigint,
    last_used_at_ms bigint,
    created_at_ms bigint NOT NULL
);
CREATE INDEX keys_of_project ON {keys} (project_id);
CREATE INDEX keys_by_end ON {keys} (expires_at_ms, id) WHERE expires_at_ms IS NOT NULL;

-- Custom actions. New events cannot use a retired action; its row stays, because stored events name it.
CREATE TABLE {actions} (
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    action text COLLATE "C" NOT NULL,
    description text,
    category text,
    severity text,
    required_fields text NOT NULL,
    optional_fields text NOT NULL,
    retired_at_ms bigint,
    PRIMARY KEY (tenant_id, action)
);

-- `value` is JSON.
CREATE TABLE {settings} (
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    name text COLLATE "C" NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

-- People ----------------------------------------------------------------------------------------------------

-- One account per e-mail address; `email_lower` is the form that is compared. `password_hash` is null until
-- the person sets a password.
CREATE TABLE {persons} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    email text NOT NULL,
    email_lower text COLLATE "C" NOT NULL UNIQUE,
    password_hash text,
    verified boolean NOT NULL,
    created_at_ms bigint NOT NULL
);

-- `projects` is a list of ids, or null for all projects.
CREATE TABLE {memberships} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    person_id uuid NOT NULL REFERENCES {persons} (id),
    role text NOT NULL CHECK (role IN ('owner', 'admin', 'developer', 'privacy_officer', 'auditor')),
    projects text,
    from_ms bigint,
    until_ms bigint,
    ends_at_ms bigint,
    created_at_ms bigint NOT NULL,
    UNIQUE (person_id, tenant_id)
);
CREATE INDEX memberships_of_tenant ON {memberships} (tenant_id);
CREATE INDEX memberships_by_end ON {memberships} (ends_at_ms, number) WHERE ends_at_ms IS NOT NULL;

-- A session ends at `expires_at_ms`, or after `idle_ms` without use. While it `needs_code`, it opens only the
-- page that asks for the code.
CREATE TABLE {sessions} (
    token_digest bytea NOT NULL PRIMARY KEY CHECK (octet_length(token_digest) = 32),
    person_id uuid NOT NULL REFERENCES {persons} (id),
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    last_seen_at_ms bigint NOT NULL DEFAULT 0,
    idle_ms bigint NOT NULL DEFAULT 0,
    needs_code boolean NOT NULL DEFAULT false,
    address text,
    user_agent text
);
CREATE INDEX sessions_by_end ON {sessions} (expires_at_ms);
CREATE INDEX sessions_of_person ON {sessions} (person_id);

-- Links that work once. A mailed link has no digest here: its secret is made when the mail is sent, and the
-- outbox keeps the digest under the key `link/ID`. `projects` is as in `memberships`.
CREATE TABLE {links} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    digest bytea UNIQUE CHECK (octet_length(digest) = 32),
    purpose text NOT NULL CHECK (purpose IN ('claim', 'reset', 'invitation')),
    person_id uuid REFERENCES {persons} (id),
    tenant_id uuid REFERENCES {tenants} (id),
    email text,
    email_lower text COLLATE "C",
    role text CHECK (role IN ('owner', 'admin', 'developer', 'privacy_officer', 'auditor')),
    projects text,
    from_ms bigint,
    until_ms bigint,
    ends_at_ms bigint,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    invited_by uuid REFERENCES {persons} (id),
    CHECK ((purpose = 'invitation') = (email IS NOT NULL AND email_lower IS NOT NULL AND role IS NOT NULL)),
    CHECK ((purpose = 'invitation') = (person_id IS NULL)),
    CHECK ((purpose = 'reset') = (tenant_id IS NULL))
);
CREATE INDEX links_of_tenant ON {links} (tenant_id);
CREATE INDEX links_of_person ON {links} (person_id);
CREATE INDEX links_by_end ON {links} (expires_at_ms);

-- `last_step` is the newest time step with a used code. It is null until the person enters a first code.
CREATE TABLE {authenticators} (
    person_id uuid NOT NULL PRIMARY KEY REFERENCES {persons} (id),
    secret bytea NOT NULL,
    last_step bigint,
    created_at_ms bigint NOT NULL
);

-- A row for each unused code.
CREATE TABLE {recovery_codes} (
    person_id uuid NOT NULL REFERENCES {persons} (id),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    PRIMARY KEY (person_id, digest)
);

-- The digest of the cookie of each browser that the person signed in with.
CREATE TABLE {devices} (
    person_id uuid NOT NULL REFERENCES {persons} (id),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    created_at_ms bigint NOT NULL,
    last_seen_at_ms bigint NOT NULL,
    PRIMARY KEY (person_id, digest)
);

-- Sign-in attempts, by the digest of an account or of an address.
CREATE TABLE {attempts} (
    subject bytea NOT NULL PRIMARY KEY CHECK (octet_length(subject) = 32),
    attempts bigint NOT NULL,
    ends_at_ms bigint NOT NULL
);
CREATE INDEX attempts_by_end ON {attempts} (ends_at_ms);

-- Failed sign-ins of an account, until the system chain records their counts.
CREATE TABLE {failures} (
    person_id uuid NOT NULL PRIMARY KEY REFERENCES {persons} (id),
    passwords bigint NOT NULL,
    codes bigint NOT NULL,
    began_at_ms bigint NOT NULL
);
CREATE INDEX failures_by_begin ON {failures} (began_at_ms);

-- `query` is the query string of the events page. `shared_in` is the project whose readers see the view. It
-- can be the project of a system chain, so it does not reference `projects`.
CREATE TABLE {saved_views} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    person_id uuid NOT NULL REFERENCES {persons} (id),
    name text NOT NULL,
    query text NOT NULL,
    created_at_ms bigint NOT NULL,
    shared_in uuid,
    is_pinned boolean NOT NULL DEFAULT false,
    UNIQUE (tenant_id, person_id, name)
);

-- Operators of the instance. They belong to no tenant. A removed operator keeps the row, because events name
-- its id, but no password, secret or link. The authenticator counts once `last_step` is not null.
CREATE TABLE {ops_users} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    email text NOT NULL,
    email_lower text COLLATE "C" NOT NULL,
    password_hash text,
    secret bytea,
    last_step bigint,
    link_digest bytea UNIQUE CHECK (octet_length(link_digest) = 32),
    link_expires_at_ms bigint,
    created_at_ms bigint NOT NULL,
    removed_at_ms bigint
);
CREATE UNIQUE INDEX ops_users_by_email ON {ops_users} (email_lower) WHERE removed_at_ms IS NULL;

CREATE TABLE {ops_sessions} (
    token_digest bytea NOT NULL PRIMARY KEY CHECK (octet_length(token_digest) = 32),
    user_id uuid NOT NULL REFERENCES {ops_users} (id),
    needs_code boolean NOT NULL,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    last_seen_at_ms bigint NOT NULL,
    idle_ms bigint NOT NULL,
    address text,
    user_agent text
);
CREATE INDEX ops_sessions_of_user ON {ops_sessions} (user_id);

-- The digest of the cookie that a browser has kept since an operator signed in with it.
CREATE TABLE {ops_devices} (
    user_id uuid NOT NULL REFERENCES {ops_users} (id),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    created_at_ms bigint NOT NULL,
    last_seen_at_ms bigint NOT NULL,
    PRIMARY KEY (user_id, digest)
);

-- Notices, jobs, exports ------------------------------------------------------------------------------------

-- A notice waits until it is sent or given up. 90 days later its address and parameters are erased; the row
-- stays, so that its key stays taken.
CREATE TABLE {outbox} (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    notice_key text COLLATE "C" NOT NULL UNIQUE,
    tenant_id uuid REFERENCES {tenants} (id),
    recipient text,
    template text NOT NULL,
    parameters text,
    secret_digest bytea UNIQUE CHECK (octet_length(secret_digest) = 32),
    created_at_ms bigint NOT NULL,
    due_at_ms bigint NOT NULL,
    attempts bigint NOT NULL DEFAULT 0,
    last_failure text,
    sent_at_ms bigint,
    person_id uuid REFERENCES {persons} (id),
    given_up_at_ms bigint,
    CONSTRAINT outbox_ends_once CHECK (sent_at_ms IS NULL OR given_up_at_ms IS NULL),
    CHECK (sent_at_ms IS NOT NULL OR given_up_at_ms IS NOT NULL OR (recipient IS NOT NULL AND parameters IS NOT NULL))
);
CREATE INDEX outbox_waiting ON {outbox} (due_at_ms) WHERE sent_at_ms IS NULL AND given_up_at_ms IS NULL;
CREATE INDEX outbox_with_text ON {outbox} (sent_at_ms) WHERE sent_at_ms IS NOT NULL AND parameters IS NOT NULL;
CREATE INDEX outbox_given_up ON {outbox} (given_up_at_ms) WHERE given_up_at_ms IS NOT NULL AND parameters IS NOT NULL;
CREATE INDEX outbox_of_person ON {outbox} (person_id, created_at_ms) WHERE person_id IS NOT NULL;

-- A row for each optional notice that a member turned off.
CREATE TABLE {muted_notices} (
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    person_id uuid NOT NULL REFERENCES {persons} (id),
    notice text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, notice, person_id)
);

-- `claim` counts the claims of a job, and `due_at_ms` is when a node can claim it again. `held` is true while
-- a node has the job: if another node claims it then, `deaths` counts that the first one died. The job is
-- given up by `deaths`, and by the time since `failing_since_ms`.
CREATE TABLE {jobs} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    kind text COLLATE "C" NOT NULL,
    tenant_id uuid REFERENCES {tenants} (id),
    person_id uuid REFERENCES {persons} (id),
    parameters text NOT NULL,
    state text NOT NULL CHECK (state IN ('waiting', 'running', 'done', 'failed', 'cancelled')),
    position bytea,
    claim bigint NOT NULL,
    due_at_ms bigint NOT NULL,
    cause text,
    created_at_ms bigint NOT NULL,
    ended_at_ms bigint,
    subject text COLLATE "C",
    failing_since_ms bigint,
    deaths bigint NOT NULL DEFAULT 0,
    held boolean NOT NULL DEFAULT false
);
CREATE INDEX jobs_of_tenant ON {jobs} (tenant_id);
CREATE INDEX jobs_of_subject ON {jobs} (tenant_id, kind, subject);
CREATE INDEX jobs_waiting ON {jobs} (kind, due_at_ms) WHERE ended_at_ms IS NULL;

-- A frozen query. `project_id` can be the project of a system chain. The first complete download notes its
-- totals.
CREATE TABLE {exports} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    project_id uuid NOT NULL,
    mode text NOT NULL CHECK (mode IN ('live', 'test')),
    person_id uuid NOT NULL REFERENCES {persons} (id),
    format text NOT NULL,
    query text NOT NULL,
    from_ms bigint,
    until_ms bigint,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    created_at_ms bigint NOT NULL,
    row_count bigint,
    byte_count bigint,
    sha256 bytea CHECK (octet_length(sha256) = 32),
    completed_at_ms bigint
);
CREATE INDEX exports_of_chain ON {exports} (tenant_id, project_id, mode);

-- Records that wait for the system chain, in the order of the changes. A row is removed once its record is in
-- the chain.
CREATE TABLE {pending} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    draft text NOT NULL,
    created_at_ms bigint NOT NULL
);
CREATE INDEX pending_of_tenant ON {pending} (tenant_id, number);

-- Cases: requests of data subjects --------------------------------------------------------------------------

-- Every write names the `revision` that it read, and increments it. `due_day` is the last day for an answer,
-- in days since 1970, as last calculated.
CREATE TABLE {cases} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    case_number bigint NOT NULL,
    revision bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('received', 'identity_check', 'in_progress', 'review', 'approved', 'delivered', 'closed', 'paused', 'extended', 'refused', 'withdrawn')),
    state_before_pause text,
    regime text NOT NULL,
    custom_days bigint,
    custom_extension_days bigint,
    request_type text NOT NULL,
    requester text NOT NULL,
    contact text NOT NULL,
    wrote text NOT NULL,
    channel text NOT NULL,
    received_at_ms bigint NOT NULL,
    assignee uuid REFERENCES {persons} (id),
    projects text NOT NULL,
    from_ms bigint,
    until_ms bigint,
    identifiers text NOT NULL,
    identity_method text,
    identity_outcome text,
    identity_by uuid REFERENCES {persons} (id),
    identity_at_ms bigint,
    pauses text NOT NULL,
    extension_reason text,
    extension_announced_at_ms bigint,
    confirmed_at_ms bigint,
    answer text CHECK (answer IN ('fulfilled', 'refused', 'withdrawn')),
    answered_at_ms bigint,
    answered_how text,
    refusal_ground text,
    due_day bigint NOT NULL,
    created_by uuid NOT NULL REFERENCES {persons} (id),
    created_at_ms bigint NOT NULL,
    changed_at_ms bigint NOT NULL,
    closed_at_ms bigint,
    UNIQUE (tenant_id, case_number)
);
CREATE INDEX cases_by_due ON {cases} (tenant_id, due_day) WHERE closed_at_ms IS NULL;
CREATE INDEX cases_unanswered ON {cases} (number) WHERE answered_at_ms IS NULL;
CREATE INDEX cases_by_receipt ON {cases} (tenant_id, received_at_ms);

-- The history of a case: a row for each revision, never changed. The chain has `digest`, the SHA-256 of salt
-- and note: without the salt, the digest does not confirm a guess of the note.
CREATE TABLE {case_entries} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    case_id uuid NOT NULL REFERENCES {cases} (id),
    revision bigint NOT NULL,
    person_id uuid REFERENCES {persons} (id),
    at_ms bigint NOT NULL,
    from_state text,
    to_state text,
    what text NOT NULL,
    note text NOT NULL,
    salt bytea NOT NULL CHECK (octet_length(salt) = 32),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    differences text NOT NULL,
    UNIQUE (case_id, revision)
);

-- Events that a case adds to the live chains of its projects. `key` is the idempotency key.
CREATE TABLE {case_events} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    case_id uuid NOT NULL REFERENCES {cases} (id),
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    project_id uuid NOT NULL REFERENCES {projects} (id),
    key text NOT NULL,
    action text NOT NULL,
    body text NOT NULL,
    created_at_ms bigint NOT NULL,
    due_at_ms bigint NOT NULL,
    attempts bigint NOT NULL,
    cause text,
    chain_seq bigint,
    ended_at_ms bigint,
    UNIQUE (project_id, key)
);
CREATE INDEX case_events_waiting ON {case_events} (due_at_ms) WHERE ended_at_ms IS NULL;
CREATE INDEX case_events_of_case ON {case_events} (case_id);

-- `parameters` are frozen at the start. Each piece writes `position` together with the events that it found.
CREATE TABLE {case_searches} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    case_id uuid NOT NULL REFERENCES {cases} (id),
    job_id uuid NOT NULL REFERENCES {jobs} (id),
    person_id uuid NOT NULL REFERENCES {persons} (id),
    parameters text NOT NULL,
    position text,
    looked bigint NOT NULL,
    events bigint NOT NULL,
    by_person bigint NOT NULL,
    on_person bigint NOT NULL,
    mentions bigint NOT NULL,
    outcome text CHECK (outcome IN ('done', 'too_many')),
    created_at_ms bigint NOT NULL,
    ended_at_ms bigint
);
CREATE INDEX case_searches_of_case ON {case_searches} (case_id);

-- `found` has a bit for each of the three searches. `masks` are the paths that a reviewer chose, or null for
-- the suggested ones.
CREATE TABLE {case_found} (
    search_id uuid NOT NULL REFERENCES {case_searches} (id),
    project_id uuid NOT NULL,
    chain_seq bigint NOT NULL,
    log_id text NOT NULL,
    timestamp_ms bigint NOT NULL,
    action text NOT NULL,
    category text,
    found bigint NOT NULL,
    flags bigint NOT NULL,
    decision text CHECK (decision IN ('include', 'exclude')),
    reason text,
    masks text,
    decided_by uuid REFERENCES {persons} (id),
    decided_at_ms bigint,
    revision bigint NOT NULL,
    PRIMARY KEY (search_id, project_id, chain_seq)
);
CREATE INDEX case_found_by_time ON {case_found} (search_id, timestamp_ms);

-- Values that belong to the person, that a package must not contain, or that a reviewer decided to show.
CREATE TABLE {case_values} (
    search_id uuid NOT NULL REFERENCES {case_searches} (id),
    value text NOT NULL,
    kind text NOT NULL,
    PRIMARY KEY (search_id, value, kind)
);

-- `attempt` names the pieces that are the package. `review` sums up the decisions at the time of the build.
CREATE TABLE {case_packages} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    case_id uuid NOT NULL REFERENCES {cases} (id),
    search_id uuid NOT NULL REFERENCES {case_searches} (id),
    job_id uuid NOT NULL REFERENCES {jobs} (id),
    person_id uuid NOT NULL REFERENCES {persons} (id),
    review bigint NOT NULL,
    events bigint NOT NULL,
    attempt bigint,
    byte_count bigint,
    sha256 bytea,
    manifest text,
    entries text,
    created_at_ms bigint NOT NULL,
    built_at_ms bigint,
    expires_at_ms bigint NOT NULL,
    dropped_at_ms bigint
);
CREATE INDEX case_packages_of_case ON {case_packages} (case_id);
CREATE INDEX case_packages_kept ON {case_packages} (expires_at_ms) WHERE dropped_at_ms IS NULL;

CREATE TABLE {case_package_pieces} (
    package_id uuid NOT NULL REFERENCES {case_packages} (id),
    attempt bigint NOT NULL,
    piece bigint NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (package_id, attempt, piece)
);

CREATE TABLE {case_letters} (
    case_id uuid NOT NULL REFERENCES {cases} (id),
    kind text NOT NULL CHECK (kind IN ('cover', 'response', 'refusal', 'extension')),
    body text NOT NULL,
    revision bigint NOT NULL,
    person_id uuid NOT NULL REFERENCES {persons} (id),
    changed_at_ms bigint NOT NULL,
    PRIMARY KEY (case_id, kind)
);
