-- Control data, version 12 (searches and packages of cases): what was found for a data subject, what was decided, what was handed out.

-- `parameters` are frozen when it starts. `position` is how far it has got; it is written together with what was found there.
CREATE TABLE {case_searches} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    case_id uuid NOT NULL REFERENCES {cases} (id),
    job_id uuid NOT NULL REFERENCES {jobs} (id),
    person_id uuid NOT NULL REFERENCES {persons} (id),
    parameters text NOT NULL,
    position text,
    looked bigint NOT NULL,
    events bigint NOT NULL,
    by_person bigint NOT NULL,
    on_person bigint NOT NULL,
    mentions bigint NOT NULL,
    outcome text CHECK (outcome IN ('done', 'too_many')),
    created_at_ms bigint NOT NULL,
    ended_at_ms bigint
);
CREATE INDEX case_searches_of_case ON {case_searches} (case_id);

-- `found` has a bit for each of the three searches. `masks` are the paths that a reviewer chose; without them, those that Sealog suggests.
CREATE TABLE {case_found} (
    search_id uuid NOT NULL REFERENCES {case_searches} (id),
    project_id uuid NOT NULL,
    chain_seq bigint NOT NULL,
    log_id text NOT NULL,
    timestamp_ms bigint NOT NULL,
    action text NOT NULL,
    category text,
    found bigint NOT NULL,
    flags bigint NOT NULL,
    decision text CHECK (decision IN ('include', 'exclude')),
    reason text,
    masks text,
    decided_by uuid REFERENCES {persons} (id),
    decided_at_ms bigint,
    revision bigint NOT NULL,
    PRIMARY KEY (search_id, project_id, chain_seq)
);
CREATE INDEX case_found_by_time ON {case_found} (search_id, timestamp_ms);

-- Values that are the person's, that must not stand in a package, or that somebody decided to show.
CREATE TABLE {case_values} (
    search_id uuid NOT NULL REFERENCES {case_searches} (id),
    value text NOT NULL,
    kind text NOT NULL,
    PRIMARY KEY (search_id, value, kind)
);

-- `attempt` is the one whose pieces are the package. `review` sums up what was decided when it was made.
CREATE TABLE {case_packages} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    tenant_id uuid NOT NULL REFERENCES {tenants} (id),
    case_id uuid NOT NULL REFERENCES {cases} (id),
    search_id uuid NOT NULL REFERENCES {case_searches} (id),
    job_id uuid NOT NULL REFERENCES {jobs} (id),
    person_id uuid NOT NULL REFERENCES {persons} (id),
    review bigint NOT NULL,
    events bigint NOT NULL,
    attempt bigint,
    byte_count bigint,
    sha256 bytea,
    manifest text,
    entries text,
    created_at_ms bigint NOT NULL,
    built_at_ms bigint,
    expires_at_ms bigint NOT NULL,
    dropped_at_ms bigint
);
CREATE INDEX case_packages_of_case ON {case_packages} (case_id);
CREATE INDEX case_packages_kept ON {case_packages} (expires_at_ms) WHERE dropped_at_ms IS NULL;

CREATE TABLE {case_package_pieces} (
    package_id uuid NOT NULL REFERENCES {case_packages} (id),
    attempt bigint NOT NULL,
    piece bigint NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (package_id, attempt, piece)
);

CREATE TABLE {case_letters} (
    case_id uuid NOT NULL REFERENCES {cases} (id),
    kind text NOT NULL CHECK (kind IN ('cover', 'response', 'refusal', 'extension')),
    body text NOT NULL,
    revision bigint NOT NULL,
    person_id uuid NOT NULL REFERENCES {persons} (id),
    changed_at_ms bigint NOT NULL,
    PRIMARY KEY (case_id, kind)
);
