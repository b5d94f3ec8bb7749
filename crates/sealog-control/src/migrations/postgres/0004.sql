-- Tokens that read proofs of one live chain. They are no rows of `keys`, so no look-up of a key finds one.
-- `project_id` can be the project of a system chain, so it does not reference `projects`.
CREATE TABLE {monitor_tokens} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    project_id uuid NOT NULL,
    name text NOT NULL,
    digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    prefix text NOT NULL,
    expires_at_ms bigint,
    revoked_at_ms bigint,
    last_used_at_ms bigint,
    created_at_ms bigint NOT NULL,
    created_by uuid
);
CREATE INDEX monitor_tokens_of_project ON {monitor_tokens} (project_id);
CREATE INDEX monitor_tokens_of_tenant ON {monitor_tokens} (tenant_id);
