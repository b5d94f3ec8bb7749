-- Schema, version 1. A version that was released is never changed; what comes after it is the next file.
--
-- Every table that takes part in writing or reading events has chain_id first in its primary key, and no statement on that way touches two chains:
-- on Citus each of them stays on one shard. Ids are the 16 bytes of a UUID or a ULID, hashes the 32 of a SHA-256, times Unix milliseconds.

-- One row: which store this is, and how often the control data has changed.
CREATE TABLE sealog.store (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    store_id uuid NOT NULL DEFAULT gen_random_uuid(),
    version bigint NOT NULL DEFAULT 1
);
INSERT INTO sealog.store DEFAULT VALUES;

-- The head of each chain; whoever appends holds its row. The recorded head is set when events are known to be lost: then nothing more is sealed.
CREATE TABLE sealog.chains (
    chain_id uuid NOT NULL PRIMARY KEY,
    tenant_id uuid NOT NULL,
    project_id uuid NOT NULL,
    mode text NOT NULL CHECK (mode IN ('live', 'test')),
    chain_seq bigint NOT NULL,
    log_id uuid NOT NULL,
    hash bytea NOT NULL CHECK (octet_length(hash) = 32),
    recorded_seq bigint,
    recorded_log_id uuid,
    recorded_hash bytea CHECK (octet_length(recorded_hash) = 32)
) WITH (fillfactor = 40);

-- What reads return, column by column, because verification has to read what readers see. Text, never json: the bytes that were hashed are the bytes that are kept.
CREATE TABLE sealog.events (
    chain_id uuid NOT NULL,
    chain_seq bigint NOT NULL,
    log_id uuid NOT NULL,
    timestamp_ms bigint NOT NULL,
    tenant_id uuid NOT NULL,
    project_id uuid NOT NULL,
    prev_hash bytea NOT NULL,
    hash bytea NOT NULL,
    action text COLLATE "C" NOT NULL,
    actor_id text COLLATE "C",
    resource text COLLATE "C",
    metadata text COLLATE "C",
    category text,
    severity text,
    actor_type text,
    resource_type text,
    session_id text,
    ts_client text,
    ip_address text,
    country text,
    city text,
    PRIMARY KEY (chain_id, chain_seq)
);
CREATE UNIQUE INDEX events_by_log_id ON sealog.events (chain_id, log_id);
CREATE INDEX events_by_action ON sealog.events (chain_id, action, chain_seq);
CREATE INDEX events_by_actor_id ON sealog.events (chain_id, actor_id, chain_seq) WHERE actor_id IS NOT NULL;
CREATE INDEX events_by_resource ON sealog.events (chain_id, resource, chain_seq) WHERE resource IS NOT NULL;

-- Answers that can be replayed. log_ids are 16 bytes each, one after the other.
CREATE TABLE sealog.idempotency (
    chain_id uuid NOT NULL,
    key_hash bytea NOT NULL,
    fingerprint bytea NOT NULL,
    request_id uuid NOT NULL,
    first_seq bigint NOT NULL,
    log_ids bytea NOT NULL,
    hash bytea NOT NULL,
    received_ms bigint NOT NULL,
    PRIMARY KEY (chain_id, key_hash)
);
CREATE INDEX idempotency_by_age ON sealog.idempotency (received_ms);

-- Live events by chain and month.
CREATE TABLE sealog.usage (
    chain_id uuid NOT NULL,
    month integer NOT NULL,
    tenant_id uuid NOT NULL,
    events bigint NOT NULL,
    PRIMARY KEY (chain_id, month)
) WITH (fillfactor = 40);
CREATE INDEX usage_by_tenant ON sealog.usage (tenant_id, month);

-- Control data. Never joined to the tables above. `number` is the order of creation.
CREATE TABLE sealog.tenants (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    name text NOT NULL,
    plan text NOT NULL,
    contact_email text,
    trial_ends_at_ms bigint,
    billing_active boolean NOT NULL,
    rate_limit_rps bigint,
    created_at_ms bigint NOT NULL
);

CREATE TABLE sealog.projects (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    tenant_id uuid NOT NULL REFERENCES sealog.tenants (id),
    name text NOT NULL,
    rate_limit_rps bigint,
    created_at_ms bigint NOT NULL
);
CREATE INDEX projects_of_tenant ON sealog.projects (tenant_id);

-- The history: a row for each time a framework was enabled. `framework` is its place in the catalog.
CREATE TABLE sealog.project_frameworks (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project_id uuid NOT NULL REFERENCES sealog.projects (id),
    framework integer NOT NULL CHECK (framework BETWEEN 0 AND 31),
    enabled_at_ms bigint NOT NULL,
    disabled_at_ms bigint
);
CREATE INDEX frameworks_of_project ON sealog.project_frameworks (project_id, framework);
CREATE UNIQUE INDEX frameworks_enabled_once ON sealog.project_frameworks (project_id, framework) WHERE disabled_at_ms IS NULL;

CREATE TABLE sealog.keys (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    project_id uuid NOT NULL REFERENCES sealog.projects (id),
    name text NOT NULL,
    mode text NOT NULL CHECK (mode IN ('live', 'test')),
    digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    prefix text NOT NULL,
    expires_at_ms bigint,
    revoked_at_ms bigint,
    last_used_at_ms bigint,
    created_at_ms bigint NOT NULL
);
CREATE INDEX keys_of_project ON sealog.keys (project_id);

CREATE TABLE sealog.actions (
    tenant_id uuid NOT NULL REFERENCES sealog.tenants (id),
    action text COLLATE "C" NOT NULL,
    description text,
    category text,
    severity text,
    required_fields text[] NOT NULL,
    optional_fields text[] NOT NULL,
    PRIMARY KEY (tenant_id, action)
);

CREATE TABLE sealog.users (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    tenant_id uuid NOT NULL REFERENCES sealog.tenants (id),
    email text NOT NULL,
    email_lower text COLLATE "C" NOT NULL UNIQUE,
    password_hash text NOT NULL,
    role text NOT NULL CHECK (role IN ('owner', 'admin', 'auditor')),
    created_at_ms bigint NOT NULL
);
CREATE INDEX users_of_tenant ON sealog.users (tenant_id);

CREATE TABLE sealog.sessions (
    token_digest bytea NOT NULL PRIMARY KEY CHECK (octet_length(token_digest) = 32),
    user_id uuid NOT NULL REFERENCES sealog.users (id),
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL
);
CREATE INDEX sessions_by_end ON sealog.sessions (expires_at_ms);

-- The outbox. The text of a mail that was sent long ago is taken out; its row stays, so that its key stays taken.
CREATE TABLE sealog.mails (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id uuid NOT NULL REFERENCES sealog.tenants (id),
    month integer NOT NULL,
    percent integer NOT NULL,
    recipient text,
    subject text,
    body text,
    created_at_ms bigint NOT NULL,
    due_at_ms bigint NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    last_failure text,
    sent_at_ms bigint,
    UNIQUE (tenant_id, month, percent),
    CHECK (sent_at_ms IS NOT NULL OR (recipient IS NOT NULL AND subject IS NOT NULL AND body IS NOT NULL))
);
CREATE INDEX mails_waiting ON sealog.mails (due_at_ms) WHERE sent_at_ms IS NULL;
CREATE INDEX mails_with_text ON sealog.mails (sent_at_ms) WHERE sent_at_ms IS NOT NULL AND body IS NOT NULL;
