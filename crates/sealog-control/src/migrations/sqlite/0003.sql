-- How often this store was promoted, and the highest epoch that a peer has told. One row, or none.
CREATE TABLE epochs (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    own INTEGER NOT NULL,
    seen INTEGER NOT NULL
) STRICT;
