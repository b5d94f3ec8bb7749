-- Control data, version 4: how people sign in.

-- A session ends at its time, or when nobody has used it for `idle_ms`. One that `needs_code` opens nothing but
-- the page that asks for the code. A session of before ends by itself: there was no way to use it.
ALTER TABLE sessions ADD COLUMN last_seen_at_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN idle_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN needs_code INTEGER NOT NULL DEFAULT 0 CHECK (needs_code IN (0, 1));
ALTER TABLE sessions ADD COLUMN address TEXT;
ALTER TABLE sessions ADD COLUMN user_agent TEXT;
UPDATE sessions SET last_seen_at_ms = created_at_ms;

-- Links that are used once. One that is mailed has no digest here: its secret is made when the mail leaves, and
-- the outbox has the digest under the key `link/ID`. `projects` is a JSON array of ids, or null for all of them.
CREATE TABLE links (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    digest BLOB UNIQUE CHECK (length(digest) = 32),
    purpose TEXT NOT NULL CHECK (purpose IN ('claim', 'reset', 'invitation')),
    person_id BLOB REFERENCES persons (id),
    tenant_id BLOB REFERENCES tenants (id),
    email TEXT,
    email_lower TEXT,
    role TEXT CHECK (role IN ('owner', 'admin', 'developer', 'privacy_officer', 'auditor')),
    projects TEXT,
    from_ms INTEGER,
    until_ms INTEGER,
    ends_at_ms INTEGER,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    CHECK ((purpose = 'invitation') = (email IS NOT NULL AND email_lower IS NOT NULL AND role IS NOT NULL)),
    CHECK ((purpose = 'invitation') = (person_id IS NULL)),
    CHECK ((purpose = 'reset') = (tenant_id IS NULL))
) STRICT;
CREATE INDEX links_of_tenant ON links (tenant_id);
CREATE INDEX links_of_person ON links (person_id);
CREATE INDEX links_by_end ON links (expires_at_ms);

-- A person's authenticator. `last_step` is the newest time step of which a code was used, null until the person
-- has shown that the authenticator works.
CREATE TABLE authenticators (
    person_id BLOB NOT NULL PRIMARY KEY REFERENCES persons (id),
    secret BLOB NOT NULL,
    last_step INTEGER,
    created_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A row for each code that was not used.
CREATE TABLE recovery_codes (
    person_id BLOB NOT NULL REFERENCES persons (id),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    PRIMARY KEY (person_id, digest)
) STRICT, WITHOUT ROWID;

-- How often somebody has tried to sign in, by the digest of an account or of an address.
CREATE TABLE attempts (
    subject BLOB NOT NULL PRIMARY KEY CHECK (length(subject) = 32),
    attempts INTEGER NOT NULL,
    ends_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX attempts_by_end ON attempts (ends_at_ms);
