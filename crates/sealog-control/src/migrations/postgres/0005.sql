-- Control data, version 5: jobs that can be cancelled and are found by what they are about; exports.

ALTER TABLE {jobs}
    DROP CONSTRAINT jobs_state_check,
    ADD CONSTRAINT jobs_state_check CHECK (state IN ('waiting', 'running', 'done', 'failed', 'cancelled')),
    ADD COLUMN subject text COLLATE "C";
CREATE INDEX jobs_of_subject ON {jobs} (tenant_id, kind, subject);

-- A frozen query. `project_id` may be that of a system chain, which is no row of `projects`. What a complete download
-- came to is noted once, by the first.
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
