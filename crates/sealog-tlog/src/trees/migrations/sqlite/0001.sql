-- Trees, version 1. A released version is never changed: the next change is the next file. All of it is
-- derived from the events and from the root keys of the salts.

-- A tree for each chain, as it was after the transaction with this revision. `size` is the number of its
-- leaves and `hash` that of the last event among them; `peaks` are the hashes of its right edge. `cut_to` is
-- the size that it was cut to in the transaction `cut_revision`; `stopped_at` the event that it cannot go on
-- with, and `tried` the revision when that was last tried. 0 for never.
CREATE TABLE chains (
    number INTEGER NOT NULL PRIMARY KEY,
    tenant_id BLOB NOT NULL,
    project_id BLOB NOT NULL,
    size INTEGER NOT NULL,
    hash BLOB NOT NULL,
    peaks BLOB NOT NULL,
    revision INTEGER NOT NULL,
    cut_to INTEGER NOT NULL,
    cut_revision INTEGER NOT NULL,
    stopped_at INTEGER NOT NULL,
    problem TEXT NOT NULL,
    tried INTEGER NOT NULL,
    UNIQUE (tenant_id, project_id)
) STRICT;
CREATE INDEX chains_by_revision ON chains (revision, number);
CREATE INDEX chains_stopped ON chains (tried, number) WHERE stopped_at > 0;

-- Up to 256 hashes of level 8 * `level` of a tree, from left to right, 32 bytes each.
CREATE TABLE tiles (
    chain INTEGER NOT NULL,
    level INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    hashes BLOB NOT NULL,
    PRIMARY KEY (chain, level, idx)
) STRICT;

-- One row. `life` is random, and another one when all of this was made anew. Each transaction counts the
-- revision up. `node` builds until `until_ms`.
CREATE TABLE builder (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    life BLOB NOT NULL,
    revision INTEGER NOT NULL,
    position TEXT NOT NULL,
    node BLOB NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT;
