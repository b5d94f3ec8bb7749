-- For the feed: the transaction that has moved a chain's head last, and the group of 256 transactions that it is in. The index is on the group, so that a chain
-- that is written to all the time gets a new entry once in a group and is otherwise updated in place (HOT). A constant default rewrites no row.
ALTER TABLE sealog.chains ADD COLUMN changed xid8 NOT NULL DEFAULT '0', ADD COLUMN changed_group bigint NOT NULL DEFAULT 0;
CREATE INDEX chains_by_change ON sealog.chains (changed_group);
