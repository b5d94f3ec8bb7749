-- Two roles: sealog_owner makes the schema, sealog_node runs the service and can neither change nor remove an event.
--
--   1. psql -d DATABASE -f roles.sql                        as a superuser, in the database that Sealog will use
--   2. sealog migrate --store postgres://sealog_owner@…
--   3. psql -d DATABASE -f roles.sql                        again: now there are tables to grant rights on
--   4. sealog serve with SEALOG_STORE=postgres://sealog_node@…
--
-- Repeat 2 before each new version: it also grants what is new to whoever has the rights of sealog_node by then. Give the roles passwords or certificates as you do elsewhere (ALTER ROLE sealog_node PASSWORD …).
-- Running it again changes nothing that is already so.

DO $$
BEGIN
    IF to_regrole('sealog_owner') IS NULL THEN CREATE ROLE sealog_owner LOGIN; END IF;
    IF to_regrole('sealog_node') IS NULL THEN CREATE ROLE sealog_node LOGIN; END IF;
    EXECUTE format('GRANT CONNECT, CREATE ON DATABASE %I TO sealog_owner', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO sealog_node', current_database());
    IF to_regclass('sealog.migrations') IS NULL OR to_regclass('sealog_control.migrations') IS NULL THEN
        RAISE NOTICE 'there is no schema yet: run sealog migrate as sealog_owner, then this file again';
        RETURN;
    END IF;

    REVOKE ALL ON ALL TABLES IN SCHEMA sealog, sealog_control FROM sealog_node;

    -- Rights in sealog: `sealog migrate` grants them as well, with each new step, to every role that can add events.
    GRANT USAGE ON SCHEMA sealog TO sealog_node;
    GRANT SELECT ON ALL TABLES IN SCHEMA sealog TO sealog_node;

    -- Events are only ever added.
    GRANT INSERT ON sealog.events TO sealog_node;
    GRANT INSERT, UPDATE ON sealog.usage TO sealog_node;
    -- Of a chain's row its head, and what was found lost. Not whose chain it is, nor what was dropped of it: the function below sets that.
    -- `changed` and `changed_group` have defaults, which Citus writes out.
    GRANT INSERT (chain_id, tenant_id, project_id, mode, chain_seq, log_id, hash, changed, changed_group) ON sealog.chains TO sealog_node;
    GRANT UPDATE (chain_seq, log_id, hash, recorded_seq, recorded_log_id, recorded_hash, changed, changed_group) ON sealog.chains TO sealog_node;
    -- Counts are made from events, and again where events were lost.
    GRANT INSERT, UPDATE, DELETE ON sealog.counts, sealog.counted TO sealog_node;
    -- What events are found by, derived from them.
    GRANT INSERT, DELETE ON sealog.event_fields TO sealog_node;
    -- Old test events go by this function, which nobody else may call; of live chains it deletes nothing, whoever calls it.
    GRANT EXECUTE ON FUNCTION sealog.drop_test_events(uuid, bigint, bigint) TO sealog_node;
    GRANT INSERT, UPDATE ON sealog.fields_indexed TO sealog_node;
    -- Idempotency records end after 24 hours.
    GRANT INSERT, UPDATE, DELETE ON sealog.idempotency TO sealog_node;

    -- How often control data has changed, which every node watches.
    GRANT UPDATE (version) ON sealog.store TO sealog_node;
    -- End of rights in sealog.

    -- On Citus: the counters of followers. `sealog migrate --citus` grants this as well.
    IF to_regclass('sealog.feed') IS NOT NULL THEN GRANT UPDATE ON sealog.feed TO sealog_node; END IF;

    -- Rights in sealog_control: likewise. Control data is changed; only what has had its use is ever removed.
    GRANT USAGE ON SCHEMA sealog_control TO sealog_node;
    GRANT SELECT ON ALL TABLES IN SCHEMA sealog_control TO sealog_node;
    GRANT INSERT, UPDATE ON sealog_control.tenants, sealog_control.projects, sealog_control.project_frameworks, sealog_control.keys, sealog_control.monitor_tokens,
        sealog_control.persons, sealog_control.memberships, sealog_control.outbox, sealog_control.actions TO sealog_node;
    -- What was done to a case stays as it was written.
    GRANT INSERT, UPDATE ON sealog_control.cases, sealog_control.case_events TO sealog_node;
    GRANT INSERT ON sealog_control.case_entries TO sealog_node;
    -- What was found is replaced by the next search; packages expire, their records stay.
    GRANT INSERT, UPDATE ON sealog_control.case_searches, sealog_control.case_packages, sealog_control.case_letters TO sealog_node;
    GRANT INSERT, UPDATE, DELETE ON sealog_control.case_found, sealog_control.case_values, sealog_control.case_package_pieces TO sealog_node;
    GRANT INSERT ON sealog_control.system_projects TO sealog_node;
    GRANT INSERT, UPDATE ON sealog_control.ops_users TO sealog_node;
    GRANT INSERT, UPDATE, DELETE ON sealog_control.ops_sessions, sealog_control.ops_devices TO sealog_node;
    GRANT INSERT, DELETE ON sealog_control.pending, sealog_control.links, sealog_control.recovery_codes TO sealog_node;
    GRANT INSERT, UPDATE, DELETE ON sealog_control.settings, sealog_control.sessions, sealog_control.authenticators, sealog_control.attempts,
        sealog_control.failures, sealog_control.jobs, sealog_control.exports, sealog_control.saved_views, sealog_control.key_requests TO sealog_node;
    -- Browsers that somebody has signed in with, and notices that somebody does not want.
    GRANT INSERT, UPDATE, DELETE ON sealog_control.devices TO sealog_node;
    GRANT INSERT, DELETE ON sealog_control.muted_notices TO sealog_node;
    -- One row each, which is written again.
    GRANT INSERT, UPDATE ON sealog_control.epochs, sealog_control.known_log TO sealog_node;
    -- End of rights in sealog_control.

    IF to_regclass('sealog_trees.migrations') IS NOT NULL THEN
    REVOKE ALL ON ALL TABLES IN SCHEMA sealog_trees FROM sealog_node;
    -- Rights in sealog_trees: likewise. All of it is derived, and is built again where it is deleted.
    GRANT USAGE ON SCHEMA sealog_trees TO sealog_node;
    GRANT SELECT ON ALL TABLES IN SCHEMA sealog_trees TO sealog_node;
    GRANT INSERT, UPDATE, DELETE ON sealog_trees.chains, sealog_trees.tiles, sealog_trees.builder TO sealog_node;
    -- End of rights in sealog_trees.
    END IF;

    IF to_regclass('sealog_log.migrations') IS NOT NULL THEN
    REVOKE ALL ON ALL TABLES IN SCHEMA sealog_log FROM sealog_node;
    -- Rights in sealog_log: likewise. Root keys of salts, and entries of the signed log, are only ever added.
    GRANT USAGE ON SCHEMA sealog_log TO sealog_node;
    GRANT SELECT ON ALL TABLES IN SCHEMA sealog_log TO sealog_node;
    GRANT INSERT ON sealog_log.salt_keys, sealog_log.entries TO sealog_node;
    -- A tile grows by a hash, a key is retired, a head is published again.
    GRANT INSERT, UPDATE ON sealog_log.tiles, sealog_log.log_keys, sealog_log.published TO sealog_node;
    -- Of old snapshots the last of each hour and day stays. Their checkpoints are removed with them, never changed.
    GRANT INSERT, DELETE ON sealog_log.checkpoints, sealog_log.heads TO sealog_node;
    GRANT INSERT, UPDATE, DELETE ON sealog_log.snapshots, sealog_log.state TO sealog_node;
    -- End of rights in sealog_log.
    END IF;
END
$$;
