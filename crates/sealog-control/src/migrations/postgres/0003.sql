-- How often this store was promoted, and the highest epoch that a peer has told. One row, or none.
CREATE TABLE {epochs} (
    id bigint NOT NULL PRIMARY KEY CHECK (id = 1),
    own bigint NOT NULL,
    seen bigint NOT NULL
);
