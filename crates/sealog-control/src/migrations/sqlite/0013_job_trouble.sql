-- What a job is given up by: since when it fails, and how often it took its node with it.
ALTER TABLE jobs ADD COLUMN failing_since_ms INTEGER;
ALTER TABLE jobs ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0;
-- Whether somebody has it who has not given it back.
ALTER TABLE jobs ADD COLUMN held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1));
