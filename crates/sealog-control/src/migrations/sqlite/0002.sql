-- Who made a key, which key takes its place, and how often it is used.
ALTER TABLE keys ADD COLUMN created_by BLOB;
ALTER TABLE keys ADD COLUMN replaced_by BLOB;

-- Requests with a key in an hour since the epoch. Hours that no page shows are removed.
CREATE TABLE key_requests (
    key_id BLOB NOT NULL REFERENCES keys (id),
    hour INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    PRIMARY KEY (key_id, hour)
) STRICT, WITHOUT ROWID;
