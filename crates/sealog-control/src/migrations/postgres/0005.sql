-- The signed log that this store is known to have, kept apart from it. One row, or none.
CREATE TABLE {known_log} (
    id bigint NOT NULL PRIMARY KEY CHECK (id = 1),
    origin text NOT NULL,
    vkey text NOT NULL,
    size bigint NOT NULL
);
