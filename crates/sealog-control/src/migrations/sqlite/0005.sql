-- Control data, version 5: jobs that can be cancelled and are found by what they are about; exports.

-- SQLite cannot change a check, so the table is made again.
CREATE TABLE jobs_5 (
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
    ended_at_ms INTEGER
) STRICT;
INSERT INTO jobs_5 (number, id, kind, tenant_id, person_id, parameters, state, position, claim, due_at_ms, cause, created_at_ms, ended_at_ms)
    SELECT number, id, kind, tenant_id, person_id, parameters, state, position, claim, due_at_ms, cause, created_at_ms, ended_at_ms FROM jobs;
DROP TABLE jobs;
ALTER TABLE jobs_5 RENAME TO jobs;
CREATE INDEX jobs_of_tenant ON jobs (tenant_id, kind, subject);
CREATE INDEX jobs_waiting ON jobs (kind, due_at_ms) WHERE ended_at_ms IS NULL;

-- A frozen query. `project_id` may be that of a system chain, which is no row of `projects`. What a complete download
-- came to is noted once, by the first.
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
