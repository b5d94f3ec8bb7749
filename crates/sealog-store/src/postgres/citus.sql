-- Distributes the tables of events over the nodes of a Citus cluster, by chain_id. Run it as the owner, after the migrations; `sealog migrate --citus` runs this file.
-- A table that is distributed is left as it is: run it again after a migration that has made another.
--
-- What belongs to a chain is on one shard: its head, its events, its idempotency records, its usage, its counts. Control data stays on the coordinator.
-- With rows in the tables Citus moves them, and nothing can be written until it is done.

CREATE EXTENSION IF NOT EXISTS citus;
-- Which store this is: a copy on every node, so that a server that connects to a worker knows it is the right one.
CREATE TABLE IF NOT EXISTS sealog.identity (store_id uuid PRIMARY KEY);
SELECT create_reference_table('sealog.identity')
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = 'sealog.identity'::regclass);
INSERT INTO sealog.identity SELECT store_id FROM sealog.store ON CONFLICT DO NOTHING;
SELECT create_distributed_table('sealog.chains', 'chain_id')
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = 'sealog.chains'::regclass);
SELECT create_distributed_table('sealog.events', 'chain_id', colocate_with => 'sealog.chains')
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = 'sealog.events'::regclass);
SELECT create_distributed_table('sealog.idempotency', 'chain_id', colocate_with => 'sealog.chains')
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = 'sealog.idempotency'::regclass);
SELECT create_distributed_table('sealog.usage', 'chain_id', colocate_with => 'sealog.chains')
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = 'sealog.usage'::regclass);
SELECT create_distributed_table('sealog.counts', 'chain_id', colocate_with => 'sealog.chains')
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = 'sealog.counts'::regclass);
SELECT create_distributed_table('sealog.counted', 'chain_id', colocate_with => 'sealog.chains')
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = 'sealog.counted'::regclass);
