-- Control data, version 1. A version that was released is never changed; what comes after it is the next file.
--
-- `number` is the order of creation. Ids are the 16 bytes of a UUID, digests the 32 of a SHA-256, times Unix milliseconds.

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

CREATE TABLE projects (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    name TEXT NOT NULL,
    rate_limit_rps INTEGER,
    created_at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX projects_of_tenant ON projects (tenant_id);

-- The history: a row for each time a framework was enabled. `framework` is its place in the catalog.
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

-- Both lists of fields are JSON arrays of strings.
CREATE TABLE actions (
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    action TEXT NOT NULL,
    description TEXT,
    category TEXT,
    severity TEXT,
    required_fields TEXT NOT NULL,
    optional_fields TEXT NOT NULL,
    PRIMARY KEY (tenant_id, action)
) STRICT, WITHOUT ROWID;

CREATE TABLE users (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    email TEXT NOT NULL,
    email_lower TEXT NOT NULL UNIQUE,
    password_hash TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('owner', 'admin', 'auditor')),
    created_at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX users_of_tenant ON users (tenant_id);

CREATE TABLE sessions (
    token_digest BLOB NOT NULL PRIMARY KEY CHECK (length(token_digest) = 32),
    user_id BLOB NOT NULL REFERENCES users (id),
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_by_end ON sessions (expires_at_ms);

-- The outbox. The text of a mail that was sent long ago is taken out; its row stays, so that its key stays taken.
CREATE TABLE mails (
    id INTEGER PRIMARY KEY,
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    month INTEGER NOT NULL,
    percent INTEGER NOT NULL,
    recipient TEXT,
    subject TEXT,
    body TEXT,
    created_at_ms INTEGER NOT NULL,
    due_at_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    last_failure TEXT,
    sent_at_ms INTEGER,
    UNIQUE (tenant_id, month, percent),
    CHECK (sent_at_ms IS NOT NULL OR (recipient IS NOT NULL AND subject IS NOT NULL AND body IS NOT NULL))
) STRICT;
CREATE INDEX mails_waiting ON mails (due_at_ms) WHERE sent_at_ms IS NULL;
CREATE INDEX mails_with_text ON mails (sent_at_ms) WHERE sent_at_ms IS NOT NULL AND body IS NOT NULL;
