-- Events, version 1. A released version is never changed: the next change is the next file.
--
-- Every table of the write and read path has chain_id first in its primary key, and no statement there
-- touches two chains, so that Citus keeps each chain on one shard. Ids are the 16 bytes of a UUID or a ULID,
-- hashes the 32 bytes of a SHA-256, times Unix milliseconds.

-- One row: the id of this store, and a version that grows with every change of control data.
CREATE TABLE sealog.store (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    store_id uuid NOT NULL DEFAULT gen_random_uuid(),
    version bigint NOT NULL DEFAULT 1
);
INSERT INTO sealog.store DEFAULT VALUES;

-- The head of each chain. An append locks and updates the row: the fill factor keeps these updates HOT.
CREATE TABLE sealog.chains (
    chain_id uuid NOT NULL PRIMARY KEY,
    tenant_id uuid NOT NULL,
    project_id uuid NOT NULL,
    mode text NOT NULL CHECK (mode IN ('live', 'test')),
    chain_seq bigint NOT NULL,
    log_id uuid NOT NULL,
    hash bytea NOT NULL CHECK (octet_length(hash) = 32),
    -- The recorded head: set when events behind chain_seq are known to be lost. The chain then takes none.
    recorded_seq bigint,
    recorded_log_id uuid,
    recorded_hash bytea CHECK (octet_length(recorded_hash) = 32),
    -- For the feed: the transaction that last moved the head, and its group of 256 transactions. The index is
    -- on the group: a busy chain gets one index entry per group, and its other updates stay HOT.
    changed xid8 NOT NULL DEFAULT '0',
    changed_group bigint NOT NULL DEFAULT 0,
    -- Retention of test chains: the last dropped event. The first kept event names its hash.
    dropped_seq bigint,
    dropped_log_id uuid,
    dropped_hash bytea CHECK (octet_length(dropped_hash) = 32),
    -- Only a test chain has dropped events, and its last event always stays. The chain's id is a hash of
    -- tenant, project and mode, so a forged `mode` does not pass.
    CONSTRAINT dropped_of_a_test_chain CHECK (dropped_seq IS NULL
        OR (dropped_seq > 0 AND dropped_seq < chain_seq AND mode = 'test'
            AND substr(sha256('sealog chain'::bytea || uuid_send(tenant_id) || uuid_send(project_id)
                              || 'test'::bytea), 1, 16) = uuid_send(chain_id)))
) WITH (fillfactor = 40);
CREATE INDEX chains_by_change ON sealog.chains (changed_group);

-- Events, column by column: verification reads the same columns as readers. `metadata` is text and not json,
-- because the stored bytes must be the hashed bytes.
CREATE TABLE sealog.events (
    chain_id uuid NOT NULL,
    chain_seq bigint NOT NULL,
    log_id uuid NOT NULL,
    timestamp_ms bigint NOT NULL,
    tenant_id uuid NOT NULL,
    project_id uuid NOT NULL,
    prev_hash bytea NOT NULL,
    hash bytea NOT NULL,
    action text COLLATE "C" NOT NULL,
    actor_id text COLLATE "C",
    resource text COLLATE "C",
    metadata text COLLATE "C",
    category text,
    severity text,
    actor_type text,
    resource_type text,
    session_id text,
    ts_client text,
    ip_address text,
    country text,
    city text,
    schema_version integer NOT NULL DEFAULT 1,
    PRIMARY KEY (chain_id, chain_seq)
);
CREATE UNIQUE INDEX events_by_log_id ON sealog.events (chain_id, log_id);
CREATE INDEX events_by_action ON sealog.events (chain_id, action, chain_seq);
CREATE INDEX events_by_actor_id ON sealog.events (chain_id, actor_id, chain_seq) WHERE actor_id IS NOT NULL;
CREATE INDEX events_by_resource ON sealog.events (chain_id, resource, chain_seq) WHERE resource IS NOT NULL;

-- Answers to replay. `log_ids` holds 16 bytes per event.
CREATE TABLE sealog.idempotency (
    chain_id uuid NOT NULL,
    key_hash bytea NOT NULL,
    fingerprint bytea NOT NULL,
    request_id uuid NOT NULL,
    first_seq bigint NOT NULL,
    log_ids bytea NOT NULL,
    hash bytea NOT NULL,
    received_ms bigint NOT NULL,
    PRIMARY KEY (chain_id, key_hash)
);
CREATE INDEX idempotency_by_age ON sealog.idempotency (received_ms);

-- Live events by chain and month.
CREATE TABLE sealog.usage (
    chain_id uuid NOT NULL,
    month integer NOT NULL,
    tenant_id uuid NOT NULL,
    events bigint NOT NULL,
    PRIMARY KEY (chain_id, month)
) WITH (fillfactor = 40);
CREATE INDEX usage_by_tenant ON sealog.usage (tenant_id, month);

-- The index of metadata members. A background loop derives it from sealog.events; a search reads the events
-- that are not indexed yet.
CREATE TABLE sealog.event_fields (
    chain_id uuid NOT NULL,
    -- A keyed hash of name and value; 0 for an event that has too many members.
    key bigint NOT NULL,
    chain_seq bigint NOT NULL,
    PRIMARY KEY (chain_id, key, chain_seq)
);

-- The last indexed event of each chain. After a loss another event may have its number, but not its `log_id`.
CREATE TABLE sealog.fields_indexed (
    chain_id uuid NOT NULL PRIMARY KEY,
    chain_seq bigint NOT NULL,
    log_id uuid NOT NULL
);

-- Counts by chain and day, also derived. `counted` has the last counted event of each chain; if that event is
-- gone, the chain is counted again from its first event.
CREATE TABLE sealog.counts (
    chain_id uuid NOT NULL,
    day integer NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (chain_id, day)
);
CREATE TABLE sealog.counted (
    chain_id uuid NOT NULL PRIMARY KEY,
    chain_seq bigint NOT NULL,
    log_id uuid NOT NULL
);

-- The only statement that deletes events. It runs with the rights of the owner, so that nodes need none, and
-- trusts no column that a node can write: it checks the chain's id, as the constraint above does. It keeps
-- the last event, which proves the head to appends, drops nothing from a chain with a known loss, and stops
-- at a gap. Returns the last dropped seq, or null for none.
CREATE FUNCTION sealog.drop_test_events(of_chain uuid, before_ms bigint, until_seq bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    head record;
    last record;
BEGIN
    SELECT c.chain_seq, coalesce(c.dropped_seq, 0) AS dropped INTO head FROM sealog.chains c
        WHERE c.chain_id = of_chain AND c.mode = 'test' AND c.recorded_seq IS NULL
            AND substr(sha256('sealog chain'::bytea || uuid_send(c.tenant_id) || uuid_send(c.project_id) || 'test'::bytea), 1, 16) = uuid_send(of_chain)
        FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT e.chain_seq, e.log_id, e.hash INTO last FROM (
            SELECT chain_seq, log_id, hash, timestamp_ms, row_number() OVER (ORDER BY chain_seq) AS number
            FROM sealog.events WHERE chain_id = of_chain AND chain_seq <= until_seq AND chain_seq < head.chain_seq
        ) AS e WHERE e.timestamp_ms < before_ms AND e.chain_seq = head.dropped + e.number
        ORDER BY e.chain_seq DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    UPDATE sealog.chains SET dropped_seq = last.chain_seq, dropped_log_id = last.log_id, dropped_hash = last.hash WHERE chain_id = of_chain;
    DELETE FROM sealog.events WHERE chain_id = of_chain AND chain_seq <= last.chain_seq;
    RETURN last.chain_seq;
END
$$;
REVOKE ALL ON FUNCTION sealog.drop_test_events(uuid, bigint, bigint) FROM PUBLIC;
