-- Counts of each chain by day, made from its events in pieces, and how far they go. What was stored before this step is counted in the background.
-- A chain whose last counted event is not there any more is counted again from its first.
CREATE TABLE sealog.counts (
    chain_id uuid NOT NULL,
    day integer NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (chain_id, day)
);
CREATE TABLE sealog.counted (
    chain_id uuid NOT NULL PRIMARY KEY,
    chain_seq bigint NOT NULL,
    log_id uuid NOT NULL
);
