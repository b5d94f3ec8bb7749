-- The store log, version 1. A released version is never changed: the next change is the next file. It is the
-- store's identity: nothing of it can be made again.

-- Root keys of the salts of a chain, in the order in which they were made. The salt of an event comes from
-- the last one whose `from_seq` is not above its own. The first is from 1 and without an event; each later
-- one belongs to the event that has accepted a loss, so that no salt is used for two events.
CREATE TABLE salt_keys (
    tenant_id BLOB NOT NULL,
    project_id BLOB NOT NULL,
    number INTEGER NOT NULL,
    from_seq INTEGER NOT NULL,
    event_hash BLOB NOT NULL,
    key BLOB NOT NULL,
    PRIMARY KEY (tenant_id, project_id, number),
    UNIQUE (tenant_id, project_id, from_seq, event_hash)
) STRICT;
