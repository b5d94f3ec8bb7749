-- What a job is given up by: since when it fails, and how often it took its node with it.
ALTER TABLE {jobs} ADD COLUMN failing_since_ms bigint;
ALTER TABLE {jobs} ADD COLUMN deaths bigint NOT NULL DEFAULT 0;
-- Whether somebody has it who has not given it back.
ALTER TABLE {jobs} ADD COLUMN held boolean NOT NULL DEFAULT false;
