-- Control data: operators have sessions and known browsers of the same shape as those of people.

ALTER TABLE {ops_sessions} ADD COLUMN address text;
ALTER TABLE {ops_sessions} ADD COLUMN user_agent text;

-- The digest of the cookie that a browser has kept since an operator signed in with it.
CREATE TABLE {ops_devices} (
    user_id uuid NOT NULL REFERENCES {ops_users} (id),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    created_at_ms bigint NOT NULL,
    last_seen_at_ms bigint NOT NULL,
    PRIMARY KEY (user_id, digest)
);
