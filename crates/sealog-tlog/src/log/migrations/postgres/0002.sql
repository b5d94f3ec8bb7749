-- The store log. A released version is never changed: the next change is the next file.
--
-- `log` counts the logs that this store began, from 1; `idx` is the index of an entry in its log. Hashes are
-- the 32 bytes of a SHA-256, times Unix milliseconds.

-- Where the current log is. One row, or none before the first log began. `peaks` are the hashes of the
-- complete subtrees of its tree. A signer changes `taken` first and so takes the row's lock.
CREATE TABLE {state} (
    id bigint NOT NULL PRIMARY KEY CHECK (id = 1),
    log bigint NOT NULL,
    origin text NOT NULL,
    size bigint NOT NULL,
    root bytea NOT NULL CHECK (octet_length(root) = 32),
    peaks bytea NOT NULL,
    time_ms bigint NOT NULL,
    heads_idx bigint,
    heads_ms bigint NOT NULL,
    blind bytea NOT NULL CHECK (octet_length(blind) = 32),
    taken bigint NOT NULL
);

-- Entries are only ever added.
CREATE TABLE {entries} (
    log bigint NOT NULL,
    idx bigint NOT NULL,
    entry bytea NOT NULL,
    PRIMARY KEY (log, idx)
);
CREATE FUNCTION {only_added}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'rows of % are only added', TG_TABLE_NAME; END $$;
CREATE TRIGGER entries_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON {entries} EXECUTE FUNCTION {only_added}();

CREATE TABLE {tiles} (
    log bigint NOT NULL,
    level bigint NOT NULL,
    idx bigint NOT NULL,
    hashes bytea NOT NULL,
    PRIMARY KEY (log, level, idx)
);

-- Signed checkpoints. They are thinned with the snapshots and never changed.
CREATE TABLE {checkpoints} (
    log bigint NOT NULL,
    size bigint NOT NULL,
    note text NOT NULL,
    PRIMARY KEY (log, size)
);
CREATE TRIGGER checkpoints_keep BEFORE UPDATE OR TRUNCATE ON {checkpoints} EXECUTE FUNCTION {only_added}();

-- Keys by their entries.
CREATE TABLE {log_keys} (
    log bigint NOT NULL,
    idx bigint NOT NULL,
    role text NOT NULL CHECK (role IN ('log', 'service')),
    vkey text NOT NULL,
    added_ms bigint NOT NULL,
    retired_idx bigint,
    retired_ms bigint,
    PRIMARY KEY (log, idx)
);

-- The last published head of each chain, with the hash of its event at that size.
CREATE TABLE {published} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tag bytea NOT NULL UNIQUE CHECK (octet_length(tag) = 32),
    tenant_id uuid NOT NULL,
    project_id uuid NOT NULL,
    log bigint NOT NULL,
    idx bigint NOT NULL,
    size bigint NOT NULL,
    root bytea NOT NULL CHECK (octet_length(root) = 32),
    hash bytea NOT NULL CHECK (octet_length(hash) = 32),
    finding text
);

-- A row for each snapshot in which a chain had changed.
CREATE TABLE {heads} (
    chain bigint NOT NULL REFERENCES {published} (number),
    log bigint NOT NULL,
    idx bigint NOT NULL,
    size bigint NOT NULL,
    root bytea NOT NULL,
    PRIMARY KEY (chain, log, idx)
);
CREATE INDEX heads_by_snapshot ON {heads} (log, idx);

-- Snapshots whose heads are kept: all (0), as the last of an hour (1), as the last of a day (2).
CREATE TABLE {snapshots} (
    log bigint NOT NULL,
    idx bigint NOT NULL,
    time_ms bigint NOT NULL,
    root bytea NOT NULL,
    kept bigint NOT NULL,
    PRIMARY KEY (log, idx)
);
CREATE INDEX snapshots_to_thin ON {snapshots} (kept, time_ms);
