-- Control data, version 6: failed sign-ins that wait to be recorded, retired actions, saved views.

-- A row for each account that somebody failed to sign in to, until its counts are recorded.
CREATE TABLE {failures} (
    person_id uuid NOT NULL PRIMARY KEY REFERENCES {persons} (id),
    passwords bigint NOT NULL,
    codes bigint NOT NULL,
    began_at_ms bigint NOT NULL
);
CREATE INDEX failures_by_begin ON {failures} (began_at_ms);

-- No event may have a retired action any more; those that have it keep its name.
ALTER TABLE {actions} ADD COLUMN retired_at_ms bigint;

-- `query` is the query string of the events page.
CREATE TABLE {saved_views} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    person_id uuid NOT NULL REFERENCES {persons} (id),
    name text NOT NULL,
    query text NOT NULL,
    created_at_ms bigint NOT NULL,
    UNIQUE (tenant_id, person_id, name)
);
