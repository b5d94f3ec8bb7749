-- Control data, version 10: whom a notice is for, and that it was given up; what people do not want to be told; browsers
-- that they have signed in with; what ends, found by its end.

-- A notice has been sent, or was given up, or waits. Address and parameters are taken out 90 days after its end.
ALTER TABLE {outbox}
    ADD COLUMN person_id uuid REFERENCES {persons} (id),
    ADD COLUMN given_up_at_ms bigint,
    DROP CONSTRAINT outbox_check,
    ADD CONSTRAINT outbox_check CHECK (sent_at_ms IS NOT NULL OR given_up_at_ms IS NOT NULL OR (recipient IS NOT NULL AND parameters IS NOT NULL)),
    ADD CONSTRAINT outbox_ends_once CHECK (sent_at_ms IS NULL OR given_up_at_ms IS NULL);
DROP INDEX {outbox_waiting};
CREATE INDEX outbox_waiting ON {outbox} (due_at_ms) WHERE sent_at_ms IS NULL AND given_up_at_ms IS NULL;
CREATE INDEX outbox_given_up ON {outbox} (given_up_at_ms) WHERE given_up_at_ms IS NOT NULL AND parameters IS NOT NULL;
CREATE INDEX outbox_of_person ON {outbox} (person_id, created_at_ms) WHERE person_id IS NOT NULL;

-- A row for each optional notice that a member does not want.
CREATE TABLE {muted_notices} (
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    person_id uuid NOT NULL REFERENCES {persons} (id),
    notice text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, notice, person_id)
);

-- The digest of the cookie that a browser has kept since it was signed in with.
CREATE TABLE {devices} (
    person_id uuid NOT NULL REFERENCES {persons} (id),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    created_at_ms bigint NOT NULL,
    last_seen_at_ms bigint NOT NULL,
    PRIMARY KEY (person_id, digest)
);

CREATE INDEX keys_by_end ON {keys} (expires_at_ms, id) WHERE expires_at_ms IS NOT NULL;
CREATE INDEX tenants_by_trial ON {tenants} (trial_ends_at_ms, id) WHERE trial_ends_at_ms IS NOT NULL;
CREATE INDEX memberships_by_end ON {memberships} (ends_at_ms, number) WHERE ends_at_ms IS NOT NULL;
