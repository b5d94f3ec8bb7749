-- The signed log that this store is known to have, kept apart from it. One row, or none.
CREATE TABLE known_log (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    origin TEXT NOT NULL,
    vkey TEXT NOT NULL,
    size INTEGER NOT NULL
) STRICT;
