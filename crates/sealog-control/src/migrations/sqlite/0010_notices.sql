-- Control data, version 10: whom a notice is for, and that it was given up; what people do not want to be told; browsers
-- that they have signed in with; what ends, found by its end.

-- A notice has been sent, or was given up, or waits. Address and parameters are taken out 90 days after its end.
CREATE TABLE outbox_with_ends (
    id INTEGER PRIMARY KEY,
    notice_key TEXT NOT NULL UNIQUE,
    tenant_id BLOB REFERENCES tenants (id),
    person_id BLOB REFERENCES persons (id),
    recipient TEXT,
    template TEXT NOT NULL,
    parameters TEXT,
    secret_digest BLOB UNIQUE CHECK (length(secret_digest) = 32),
    created_at_ms INTEGER NOT NULL,
    due_at_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    last_failure TEXT,
    sent_at_ms INTEGER,
    given_up_at_ms INTEGER,
    CHECK (sent_at_ms IS NULL OR given_up_at_ms IS NULL),
    CHECK (sent_at_ms IS NOT NULL OR given_up_at_ms IS NOT NULL OR (recipient IS NOT NULL AND parameters IS NOT NULL))
) STRICT;
INSERT INTO outbox_with_ends (id, notice_key, tenant_id, recipient, template, parameters, secret_digest, created_at_ms, due_at_ms, attempts, last_failure, sent_at_ms)
    SELECT id, notice_key, tenant_id, recipient, template, parameters, secret_digest, created_at_ms, due_at_ms, attempts, last_failure, sent_at_ms
    FROM outbox;
DROP TABLE outbox;
ALTER TABLE outbox_with_ends RENAME TO outbox;
CREATE INDEX outbox_waiting ON outbox (due_at_ms) WHERE sent_at_ms IS NULL AND given_up_at_ms IS NULL;
CREATE INDEX outbox_with_text ON outbox (sent_at_ms) WHERE sent_at_ms IS NOT NULL AND parameters IS NOT NULL;
CREATE INDEX outbox_given_up ON outbox (given_up_at_ms) WHERE given_up_at_ms IS NOT NULL AND parameters IS NOT NULL;
CREATE INDEX outbox_of_person ON outbox (person_id, created_at_ms) WHERE person_id IS NOT NULL;

-- A row for each optional notice that a member does not want.
CREATE TABLE muted_notices (
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    person_id BLOB NOT NULL REFERENCES persons (id),
    notice TEXT NOT NULL,
    PRIMARY KEY (tenant_id, notice, person_id)
) STRICT, WITHOUT ROWID;

-- The digest of the cookie that a browser has kept since it was signed in with.
CREATE TABLE devices (
    person_id BLOB NOT NULL REFERENCES persons (id),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    created_at_ms INTEGER NOT NULL,
    last_seen_at_ms INTEGER NOT NULL,
    PRIMARY KEY (person_id, digest)
) STRICT, WITHOUT ROWID;

CREATE INDEX keys_by_end ON keys (expires_at_ms, id) WHERE expires_at_ms IS NOT NULL;
CREATE INDEX tenants_by_trial ON tenants (trial_ends_at_ms, id) WHERE trial_ends_at_ms IS NOT NULL;
CREATE INDEX memberships_by_end ON memberships (ends_at_ms, number) WHERE ends_at_ms IS NOT NULL;
