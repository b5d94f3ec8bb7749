-- Who made a key, which key takes its place, and how often it is used.
ALTER TABLE {keys} ADD COLUMN created_by uuid, ADD COLUMN replaced_by uuid;

-- Requests with a key in an hour since the epoch. Hours that no page shows are removed.
CREATE TABLE {key_requests} (
    key_id uuid NOT NULL REFERENCES {keys} (id),
    hour bigint NOT NULL,
    requests bigint NOT NULL,
    PRIMARY KEY (key_id, hour)
);
