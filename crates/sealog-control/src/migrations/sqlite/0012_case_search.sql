-- Control data, version 12 (searches and packages of cases): what was found for a data subject, what was decided, what was handed out.

-- `parameters` are frozen when it starts. `position` is how far it has got; it is written together with what was found there.
CREATE TABLE case_searches (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    case_id BLOB NOT NULL REFERENCES cases (id),
    job_id BLOB NOT NULL REFERENCES jobs (id),
    person_id BLOB NOT NULL REFERENCES persons (id),
    parameters TEXT NOT NULL,
    position TEXT,
    looked INTEGER NOT NULL,
    events INTEGER NOT NULL,
    by_person INTEGER NOT NULL,
    on_person INTEGER NOT NULL,
    mentions INTEGER NOT NULL,
    outcome TEXT CHECK (outcome IN ('done', 'too_many')),
    created_at_ms INTEGER NOT NULL,
    ended_at_ms INTEGER
) STRICT;
CREATE INDEX case_searches_of_case ON case_searches (case_id);

-- `found` has a bit for each of the three searches. `masks` are the paths that a reviewer chose; without them, those that Sealog suggests.
CREATE TABLE case_found (
    search_id BLOB NOT NULL REFERENCES case_searches (id),
    project_id BLOB NOT NULL,
    chain_seq INTEGER NOT NULL,
    log_id TEXT NOT NULL,
    timestamp_ms INTEGER NOT NULL,
    action TEXT NOT NULL,
    category TEXT,
    found INTEGER NOT NULL,
    flags INTEGER NOT NULL,
    decision TEXT CHECK (decision IN ('include', 'exclude')),
    reason TEXT,
    masks TEXT,
    decided_by BLOB REFERENCES persons (id),
    decided_at_ms INTEGER,
    revision INTEGER NOT NULL,
    PRIMARY KEY (search_id, project_id, chain_seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX case_found_by_time ON case_found (search_id, timestamp_ms);

-- Values that are the person's, that must not stand in a package, or that somebody decided to show.
CREATE TABLE case_values (
    search_id BLOB NOT NULL REFERENCES case_searches (id),
    value TEXT NOT NULL,
    kind TEXT NOT NULL,
    PRIMARY KEY (search_id, value, kind)
) STRICT, WITHOUT ROWID;

-- `attempt` is the one whose pieces are the package. `review` sums up what was decided when it was made.
CREATE TABLE case_packages (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    case_id BLOB NOT NULL REFERENCES cases (id),
    search_id BLOB NOT NULL REFERENCES case_searches (id),
    job_id BLOB NOT NULL REFERENCES jobs (id),
    person_id BLOB NOT NULL REFERENCES persons (id),
    review INTEGER NOT NULL,
    events INTEGER NOT NULL,
    attempt INTEGER,
    byte_count INTEGER,
    sha256 BLOB CHECK (length(sha256) = 32),
    manifest TEXT,
    entries TEXT,
    created_at_ms INTEGER NOT NULL,
    built_at_ms INTEGER,
    expires_at_ms INTEGER NOT NULL,
    dropped_at_ms INTEGER
) STRICT;
CREATE INDEX case_packages_of_case ON case_packages (case_id);
CREATE INDEX case_packages_kept ON case_packages (expires_at_ms) WHERE dropped_at_ms IS NULL;

CREATE TABLE case_package_pieces (
    package_id BLOB NOT NULL REFERENCES case_packages (id),
    attempt INTEGER NOT NULL,
    piece INTEGER NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (package_id, attempt, piece)
) STRICT;

CREATE TABLE case_letters (
    case_id BLOB NOT NULL REFERENCES cases (id),
    kind TEXT NOT NULL CHECK (kind IN ('cover', 'response', 'refusal', 'extension')),
    body TEXT NOT NULL,
    revision INTEGER NOT NULL,
    person_id BLOB NOT NULL REFERENCES persons (id),
    changed_at_ms INTEGER NOT NULL,
    PRIMARY KEY (case_id, kind)
) STRICT, WITHOUT ROWID;
