-- Control data, version 6: failed sign-ins that wait to be recorded, retired actions, saved views.

-- A row for each account that somebody failed to sign in to, until its counts are recorded.
CREATE TABLE failures (
    person_id BLOB NOT NULL PRIMARY KEY REFERENCES persons (id),
    passwords INTEGER NOT NULL,
    codes INTEGER NOT NULL,
    began_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX failures_by_begin ON failures (began_at_ms);

-- No event may have a retired action any more; those that have it keep its name.
ALTER TABLE actions ADD COLUMN retired_at_ms INTEGER;

-- `query` is the query string of the events page.
CREATE TABLE saved_views (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    person_id BLOB NOT NULL REFERENCES persons (id),
    name TEXT NOT NULL,
    query TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    UNIQUE (tenant_id, person_id, name)
) STRICT;
