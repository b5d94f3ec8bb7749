-- Control data, version 3: the project that is reserved for a tenant's system chain.

-- No row of `projects`: it has no name, no keys and no frameworks, and no list shows it.
CREATE TABLE system_projects (
    tenant_id BLOB NOT NULL PRIMARY KEY REFERENCES tenants (id),
    project_id BLOB NOT NULL UNIQUE CHECK (length(project_id) = 16)
) STRICT, WITHOUT ROWID;
