-- A saved view of somebody can be shared with those who may see a project: `shared_in` names it, and may be the one that is
-- reserved for a system chain, which is not among the projects.
ALTER TABLE saved_views ADD COLUMN shared_in BLOB CHECK (shared_in IS NULL OR length(shared_in) = 16);
ALTER TABLE saved_views ADD COLUMN is_pinned INTEGER NOT NULL DEFAULT 0 CHECK (is_pinned IN (0, 1));
