-- Control data, version 1: the tables that the store's first schema has made, moved into a schema of their
-- own. A version that was released is never changed; what comes after it is the next file. `{table}` is a
-- table of this schema, `{}` the schema itself.
--
-- `number` is the order of creation. Ids are UUIDs, digests the 32 bytes of a SHA-256, times Unix
-- milliseconds.
ALTER TABLE sealog.tenants SET SCHEMA {};
ALTER TABLE sealog.projects SET SCHEMA {};
ALTER TABLE sealog.project_frameworks SET SCHEMA {};
ALTER TABLE sealog.keys SET SCHEMA {};
ALTER TABLE sealog.actions SET SCHEMA {};
ALTER TABLE sealog.users SET SCHEMA {};
ALTER TABLE sealog.sessions SET SCHEMA {};
ALTER TABLE sealog.mails SET SCHEMA {};
