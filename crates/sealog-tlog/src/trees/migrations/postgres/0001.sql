-- Trees, version 1. A released version is never changed: the next change is the next file. All of it is
-- derived from the events and from the root keys of the salts.

-- A tree for each chain, as it was after the transaction with this revision. `size` is the number of its
-- leaves and `hash` that of the last event among them; `peaks` are the hashes of its right edge. `cut_to` is
-- the size that it was cut to in the transaction `cut_revision`; `stopped_at` the event that it cannot go on
-- with, and `tried` the revision when that was last tried. 0 for never.
CREATE TABLE {chains} (
    number bigint NOT NULL PRIMARY KEY,
    tenant_id uuid NOT NULL,
    project_id uuid NOT NULL,
    size bigint NOT NULL,
    hash bytea NOT NULL,
    peaks bytea NOT NULL,
    revision bigint NOT NULL,
    cut_to bigint NOT NULL,
    cut_revision bigint NOT NULL,
    stopped_at bigint NOT NULL,
    problem text NOT NULL,
    tried bigint NOT NULL,
    UNIQUE (tenant_id, project_id)
);
CREATE INDEX chains_by_revision ON {chains} (revision, number);
CREATE INDEX chains_stopped ON {chains} (tried, number) WHERE stopped_at > 0;

-- Up to 256 hashes of level 8 * `level` of a tree, from left to right, 32 bytes each.
CREATE TABLE {tiles} (
    chain bigint NOT NULL,
    level bigint NOT NULL,
    idx bigint NOT NULL,
    hashes bytea NOT NULL,
    PRIMARY KEY (chain, level, idx)
);

-- One row. `life` is random, and another one when all of this was made anew. Each transaction counts the
-- revision up. `node` builds until `until_ms`.
CREATE TABLE {builder} (
    id bigint NOT NULL PRIMARY KEY CHECK (id = 1),
    life uuid NOT NULL,
    revision bigint NOT NULL,
    position text NOT NULL,
    node uuid NOT NULL,
    until_ms bigint NOT NULL
);
-- Hashes do not compress, and a part of a value that is kept as it is can be read without the rest.
ALTER TABLE {tiles} ALTER COLUMN hashes SET STORAGE EXTERNAL;
