-- Why this log may lack entries that were signed: it is a copy of another store's. Null once that is excluded.
ALTER TABLE state ADD COLUMN copied TEXT;
