-- Control data, version 11: requests of data subjects.

-- `revision` grows with every write, each of which names the one that it has seen. `due_day` is the last day for an answer, counted from
-- 1970, as it was when somebody last worked it out. Lists (`projects`, `pauses`, `identifiers`) are JSON arrays: they are read and written whole.
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

-- What was done to a case, once for each revision. Never changed. The chain has `digest`, the SHA-256 of salt and note.
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

-- Events of the catalog that a case puts into the live chains of its projects. `key` is the idempotency key there.
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
