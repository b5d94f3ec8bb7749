-- Control data: operators have sessions and known browsers of the same shape as those of people.

ALTER TABLE ops_sessions ADD COLUMN address TEXT;
ALTER TABLE ops_sessions ADD COLUMN user_agent TEXT;

-- The digest of the cookie that a browser has kept since an operator signed in with it.
CREATE TABLE ops_devices (
    user_id BLOB NOT NULL REFERENCES ops_users (id),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    created_at_ms INTEGER NOT NULL,
    last_seen_at_ms INTEGER NOT NULL,
    PRIMARY KEY (user_id, digest)
) STRICT, WITHOUT ROWID;
