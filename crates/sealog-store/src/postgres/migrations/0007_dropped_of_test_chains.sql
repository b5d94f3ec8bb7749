-- Only a test chain has dropped events, and its last event always stays. Whose chain it is says its id, a hash of tenant, project and mode, and not a column that can be written.
-- Not valid for the rows that are there: a forged one must not keep a server from starting, which names it (`loss.rs`) and takes no events for its chain.
ALTER TABLE sealog.chains ADD CONSTRAINT dropped_of_a_test_chain CHECK (dropped_seq IS NULL OR (dropped_seq > 0 AND dropped_seq < chain_seq AND mode = 'test'
    AND substr(sha256('sealog chain'::bytea || uuid_send(tenant_id) || uuid_send(project_id) || 'test'::bytea), 1, 16) = uuid_send(chain_id))) NOT VALID;
