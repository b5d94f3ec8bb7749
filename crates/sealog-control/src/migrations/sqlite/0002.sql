-- Control data, version 2: people apart from their memberships, an outbox for any notice, settings, jobs, and
-- records that wait for the system chain.

-- One account by e-mail address. `email_lower` is the address as it is compared. There is no password until
-- the person has set one.
CREATE TABLE persons (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    email TEXT NOT NULL,
    email_lower TEXT NOT NULL UNIQUE,
    password_hash TEXT,
    verified INTEGER NOT NULL CHECK (verified IN (0, 1)),
    created_at_ms INTEGER NOT NULL
) STRICT;

-- `projects` is a JSON array of ids, or null for all of them.
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

-- A user had one address and one tenant. Users were made by the operator, who vouches for their addresses.
INSERT INTO persons (id, email, email_lower, password_hash, verified, created_at_ms)
    SELECT id, email, email_lower, password_hash, 1, created_at_ms FROM users ORDER BY number;
INSERT INTO memberships (tenant_id, person_id, role, created_at_ms)
    SELECT tenant_id, id, role, created_at_ms FROM users ORDER BY number;

CREATE TABLE sessions_of_persons (
    token_digest BLOB NOT NULL PRIMARY KEY CHECK (length(token_digest) = 32),
    person_id BLOB NOT NULL REFERENCES persons (id),
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO sessions_of_persons SELECT token_digest, user_id, created_at_ms, expires_at_ms FROM sessions;
DROP TABLE sessions;
DROP TABLE users;
ALTER TABLE sessions_of_persons RENAME TO sessions;
CREATE INDEX sessions_by_end ON sessions (expires_at_ms);
CREATE INDEX sessions_of_person ON sessions (person_id);

-- Address and parameters of a notice that was sent long ago are taken out; its row stays, so that its key
-- stays taken.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY,
    notice_key TEXT NOT NULL UNIQUE,
    tenant_id BLOB REFERENCES tenants (id),
    recipient TEXT,
    template TEXT NOT NULL,
    parameters TEXT,
    secret_digest BLOB UNIQUE CHECK (length(secret_digest) = 32),
    created_at_ms INTEGER NOT NULL,
    due_at_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    last_failure TEXT,
    sent_at_ms INTEGER,
    CHECK (sent_at_ms IS NOT NULL OR (recipient IS NOT NULL AND parameters IS NOT NULL))
) STRICT;
CREATE INDEX outbox_waiting ON outbox (due_at_ms) WHERE sent_at_ms IS NULL;
CREATE INDEX outbox_with_text ON outbox (sent_at_ms) WHERE sent_at_ms IS NOT NULL AND parameters IS NOT NULL;

-- Mails were quota notices, and are sent as they were written.
INSERT INTO outbox (id, notice_key, tenant_id, recipient, template, parameters, created_at_ms, due_at_ms, attempts, last_failure, sent_at_ms)
    SELECT id,
           'quota/' || lower(substr(hex(tenant_id), 1, 8) || '-' || substr(hex(tenant_id), 9, 4) || '-' || substr(hex(tenant_id), 13, 4) || '-'
               || substr(hex(tenant_id), 17, 4) || '-' || substr(hex(tenant_id), 21)) || '/'
               || printf('%04d-%02d', month / 12, month % 12 + 1) || '/' || percent,
           tenant_id, recipient, 'text',
           CASE WHEN body IS NULL THEN NULL ELSE json_object('subject', subject, 'body', body) END,
           created_at_ms, due_at_ms, attempts, last_failure, sent_at_ms
    FROM mails ORDER BY id;
DROP TABLE mails;

-- `value` is JSON.
CREATE TABLE settings (
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (tenant_id, name)
) STRICT, WITHOUT ROWID;

-- `claim` counts how often a job was claimed, `due_at_ms` is when it can be claimed again.
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    kind TEXT NOT NULL,
    tenant_id BLOB REFERENCES tenants (id),
    person_id BLOB REFERENCES persons (id),
    parameters TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'done', 'failed')),
    position BLOB,
    claim INTEGER NOT NULL,
    due_at_ms INTEGER NOT NULL,
    cause TEXT,
    created_at_ms INTEGER NOT NULL,
    ended_at_ms INTEGER
) STRICT;
CREATE INDEX jobs_of_tenant ON jobs (tenant_id);
CREATE INDEX jobs_waiting ON jobs (kind, due_at_ms) WHERE ended_at_ms IS NULL;

-- `number` is the order of the changes. A row is removed once its record is in the chain.
CREATE TABLE pending (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    draft TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX pending_of_tenant ON pending (tenant_id, number);
