-- Control data, version 4: how people sign in.

-- A session ends at its time, or when nobody has used it for `idle_ms`. One that `needs_code` opens nothing but
-- the page that asks for the code. A session of before ends by itself: there was no way to use it.
ALTER TABLE {sessions}
    ADD COLUMN last_seen_at_ms bigint NOT NULL DEFAULT 0,
    ADD COLUMN idle_ms bigint NOT NULL DEFAULT 0,
    ADD COLUMN needs_code boolean NOT NULL DEFAULT false,
    ADD COLUMN address text,
    ADD COLUMN user_agent text;
UPDATE {sessions} SET last_seen_at_ms = created_at_ms;

-- Links that are used once. One that is mailed has no digest here: its secret is made when the mail leaves, and
-- the outbox has the digest under the key `link/ID`. `projects` is a JSON array of ids, or null for all of them.
CREATE TABLE {links} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    digest bytea UNIQUE CHECK (octet_length(digest) = 32),
    purpose text NOT NULL CHECK (purpose IN ('claim', 'reset', 'invitation')),
    person_id uuid REFERENCES {persons} (id),
    tenant_id uuid REFERENCES {tenants} (id),
    email text,
    email_lower text COLLATE "C",
    role text CHECK (role IN ('owner', 'admin', 'developer', 'privacy_officer', 'auditor')),
    projects text,
    from_ms bigint,
    until_ms bigint,
    ends_at_ms bigint,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    CHECK ((purpose = 'invitation') = (email IS NOT NULL AND email_lower IS NOT NULL AND role IS NOT NULL)),
    CHECK ((purpose = 'invitation') = (person_id IS NULL)),
    CHECK ((purpose = 'reset') = (tenant_id IS NULL))
);
CREATE INDEX links_of_tenant ON {links} (tenant_id);
CREATE INDEX links_of_person ON {links} (person_id);
CREATE INDEX links_by_end ON {links} (expires_at_ms);

-- A person's authenticator. `last_step` is the newest time step of which a code was used, null until the person
-- has shown that the authenticator works.
CREATE TABLE {authenticators} (
    person_id uuid NOT NULL PRIMARY KEY REFERENCES {persons} (id),
    secret bytea NOT NULL,
    last_step bigint,
    created_at_ms bigint NOT NULL
);

-- A row for each code that was not used.
CREATE TABLE {recovery_codes} (
    person_id uuid NOT NULL REFERENCES {persons} (id),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    PRIMARY KEY (person_id, digest)
);

-- How often somebody has tried to sign in, by the digest of an account or of an address.
CREATE TABLE {attempts} (
    subject bytea NOT NULL PRIMARY KEY CHECK (octet_length(subject) = 32),
    attempts bigint NOT NULL,
    ends_at_ms bigint NOT NULL
);
CREATE INDEX attempts_by_end ON {attempts} (ends_at_ms);
