-- The store log. A released version is never changed: the next change is the next file.
--
-- `log` counts the logs that this store began, from 1; `idx` is the index of an entry in its log. Hashes are
-- the 32 bytes of a SHA-256, times Unix milliseconds.

-- Where the current log is. One row, or none before the first log began. `peaks` are the hashes of the
-- complete subtrees of its tree. A signer changes `taken` first and so takes the row's lock.
CREATE TABLE state (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    log INTEGER NOT NULL,
    origin TEXT NOT NULL,
    size INTEGER NOT NULL,
    root BLOB NOT NULL CHECK (length(root) = 32),
    peaks BLOB NOT NULL,
    time_ms INTEGER NOT NULL,
    heads_idx INTEGER,
    heads_ms INTEGER NOT NULL,
    blind BLOB NOT NULL CHECK (length(blind) = 32),
    taken INTEGER NOT NULL
) STRICT;

-- Entries are only ever added.
CREATE TABLE entries (
    log INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    entry BLOB NOT NULL,
    PRIMARY KEY (log, idx)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER entries_stay BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries of the store log are only added'); END;
CREATE TRIGGER entries_keep BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries of the store log are only added'); END;

CREATE TABLE tiles (
    log INTEGER NOT NULL,
    level INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    hashes BLOB NOT NULL,
    PRIMARY KEY (log, level, idx)
) STRICT;

-- Signed checkpoints. They are thinned with the snapshots and never changed.
CREATE TABLE checkpoints (
    log INTEGER NOT NULL,
    size INTEGER NOT NULL,
    note TEXT NOT NULL,
    PRIMARY KEY (log, size)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER checkpoints_keep BEFORE UPDATE ON checkpoints BEGIN SELECT RAISE(ABORT, 'signed checkpoints are not changed'); END;

-- Keys by their entries.
CREATE TABLE log_keys (
    log INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('log', 'service')),
    vkey TEXT NOT NULL,
    added_ms INTEGER NOT NULL,
    retired_idx INTEGER,
    retired_ms INTEGER,
    PRIMARY KEY (log, idx)
) STRICT;

-- The last published head of each chain, with the hash of its event at that size.
CREATE TABLE published (
    number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    tag BLOB NOT NULL UNIQUE CHECK (length(tag) = 32),
    tenant_id BLOB NOT NULL,
    project_id BLOB NOT NULL,
    log INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    size INTEGER NOT NULL,
    root BLOB NOT NULL CHECK (length(root) = 32),
    hash BLOB NOT NULL CHECK (length(hash) = 32),
    finding TEXT
) STRICT;

-- A row for each snapshot in which a chain had changed.
CREATE TABLE heads (
    chain INTEGER NOT NULL REFERENCES published (number),
    log INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    size INTEGER NOT NULL,
    root BLOB NOT NULL,
    PRIMARY KEY (chain, log, idx)
) STRICT, WITHOUT ROWID;
CREATE INDEX heads_by_snapshot ON heads (log, idx);

-- Snapshots whose heads are kept: all (0), as the last of an hour (1), as the last of a day (2).
CREATE TABLE snapshots (
    log INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    time_ms INTEGER NOT NULL,
    root BLOB NOT NULL,
    kept INTEGER NOT NULL,
    PRIMARY KEY (log, idx)
) STRICT, WITHOUT ROWID;
CREATE INDEX snapshots_to_thin ON snapshots (kept, time_ms);
