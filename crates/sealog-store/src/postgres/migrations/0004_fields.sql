-- Members of metadata that events can be found by. Derived from sealog.events, some time after those were appended, and never the truth: what is not indexed yet is looked through.
-- An event that is there at this step is indexed like any other, from the first one of its chain on, while events are appended.
CREATE TABLE sealog.event_fields (
    chain_id uuid NOT NULL,
    -- A keyed hash of name and value; 0 for an event that has too many of them.
    key bigint NOT NULL,
    chain_seq bigint NOT NULL,
    PRIMARY KEY (chain_id, key, chain_seq)
);

-- Up to which event each chain is indexed, and which event that was: after a loss there may be another in its place.
CREATE TABLE sealog.fields_indexed (
    chain_id uuid NOT NULL PRIMARY KEY,
    chain_seq bigint NOT NULL,
    log_id uuid NOT NULL
);
