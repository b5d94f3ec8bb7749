-- The schema_version of an event is kept with it. A constant default and no check: PostgreSQL notes the default once, and neither rewrites nor reads the rows that are there.
ALTER TABLE sealog.events ADD COLUMN schema_version integer NOT NULL DEFAULT 1;
