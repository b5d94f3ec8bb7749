-- Tokens that read proofs of one live chain. They are no rows of `keys`, so no look-up of a key finds one.
-- `project_id` can be the project of a system chain, so it does not reference `projects`.
CREATE TABLE monitor_tokens (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    project_id BLOB NOT NULL CHECK (length(project_id) = 16),
    name TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    prefix TEXT NOT NULL,
    expires_at_ms INTEGER,
    revoked_at_ms INTEGER,
    last_used_at_ms INTEGER,
    created_at_ms INTEGER NOT NULL,
    created_by BLOB
) STRICT;
CREATE INDEX monitor_tokens_of_project ON monitor_tokens (project_id);
CREATE INDEX monitor_tokens_of_tenant ON monitor_tokens (tenant_id);
