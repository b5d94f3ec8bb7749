-- Retention of test chains: the last event that was dropped of each. The chain begins behind it, and its first kept event names its hash.
ALTER TABLE sealog.chains ADD COLUMN dropped_seq bigint, ADD COLUMN dropped_log_id uuid,
    ADD COLUMN dropped_hash bytea CHECK (octet_length(dropped_hash) = 32);

-- The only way by which events are ever deleted. It runs with the rights of whoever owns the tables, so that nodes need none, and believes nothing that a node can write: the id of a chain is a
-- hash of tenant, project and mode, and no row of a live chain can be made to look like one of a test chain. The last event stays: appends prove the head by it. Of a chain that is known to have lost
-- events nothing is dropped, and nothing behind a gap. The last seq that was dropped; null for none.
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
