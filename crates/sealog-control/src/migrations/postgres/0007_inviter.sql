-- Control data, version 7: who has sent an invitation. Those that were sent before that was kept have nobody.
ALTER TABLE {links} ADD COLUMN invited_by uuid REFERENCES {persons} (id);
