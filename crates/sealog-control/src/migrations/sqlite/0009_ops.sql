-- Control data: accounts of those who run the instance, and their sessions. They belong to no tenant.

-- Whoever was removed keeps the row, since events name its id, and nothing else: no password, no secret, no link. An
-- authenticator counts from its first code on, which is when `last_step` is no longer null.
CREATE TABLE ops_users (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    email TEXT NOT NULL,
    email_lower TEXT NOT NULL,
    password_hash TEXT,
    secret BLOB,
    last_step INTEGER,
    link_digest BLOB UNIQUE CHECK (length(link_digest) = 32),
    link_expires_at_ms INTEGER,
    created_at_ms INTEGER NOT NULL,
    removed_at_ms INTEGER
) STRICT;
CREATE UNIQUE INDEX ops_users_by_email ON ops_users (email_lower) WHERE removed_at_ms IS NULL;

CREATE TABLE ops_sessions (
    token_digest BLOB NOT NULL PRIMARY KEY CHECK (length(token_digest) = 32),
    user_id BLOB NOT NULL REFERENCES ops_users (id),
    needs_code INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    last_seen_at_ms INTEGER NOT NULL,
    idle_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX ops_sessions_of_user ON ops_sessions (user_id);
