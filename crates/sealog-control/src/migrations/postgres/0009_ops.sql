-- Control data: accounts of those who run the instance, and their sessions. They belong to no tenant.

-- Whoever was removed keeps the row, since events name its id, and nothing else: no password, no secret, no link. An
-- authenticator counts from its first code on, which is when `last_step` is no longer null.
CREATE TABLE {ops_users} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    email text NOT NULL,
    email_lower text COLLATE "C" NOT NULL,
    password_hash text,
    secret bytea,
    last_step bigint,
    link_digest bytea UNIQUE CHECK (octet_length(link_digest) = 32),
    link_expires_at_ms bigint,
    created_at_ms bigint NOT NULL,
    removed_at_ms bigint
);
CREATE UNIQUE INDEX ops_users_by_email ON {ops_users} (email_lower) WHERE removed_at_ms IS NULL;

CREATE TABLE {ops_sessions} (
    token_digest bytea NOT NULL PRIMARY KEY CHECK (octet_length(token_digest) = 32),
    user_id uuid NOT NULL REFERENCES {ops_users} (id),
    needs_code boolean NOT NULL,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    last_seen_at_ms bigint NOT NULL,
    idle_ms bigint NOT NULL
);
CREATE INDEX ops_sessions_of_user ON {ops_sessions} (user_id);
