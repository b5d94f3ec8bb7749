-- A saved view of somebody can be shared with those who may see a project: `shared_in` names it, and may be the one that is
-- reserved for a system chain, which is not among the projects.
ALTER TABLE {saved_views}
    ADD COLUMN shared_in uuid,
    ADD COLUMN is_pinned boolean NOT NULL DEFAULT false;
