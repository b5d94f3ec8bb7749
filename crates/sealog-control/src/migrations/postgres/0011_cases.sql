-- Control data, version 11: requests of data subjects.

-- `revision` grows with every write, each of which names the one that it has seen. `due_day` is the last day for an answer, counted from
-- 1970, as it was when somebody last worked it out. Lists (`projects`, `pauses`, `identifiers`) are JSON arrays: they are read and written whole.
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

-- What was done to a case, once for each revision. Never changed. The chain has `digest`, the SHA-256 of salt and note.
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

-- Events of the catalog that a case puts into the live chains of its projects. `key` is the idempotency key there.
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
