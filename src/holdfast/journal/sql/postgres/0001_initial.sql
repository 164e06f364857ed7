-- The first schema: the same tables as in SQLite, and the leases that stand in for its lock files.
-- It is created in the schema that the connection's search path names.

CREATE TABLE schema_version (
    version INTEGER NOT NULL
);

CREATE TABLE executions (
    num               BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id                TEXT NOT NULL UNIQUE,
    name              TEXT NOT NULL,
    kind              TEXT NOT NULL,
    title             TEXT NOT NULL,
    owner             TEXT NOT NULL,
    key               TEXT NOT NULL,
    key_digest        BYTEA UNIQUE, -- of owner and key, which may be longer than an index takes; NULL without a key
    labels            TEXT NOT NULL,
    parent_id         TEXT NOT NULL,
    created_at        BIGINT NOT NULL,
    concurrency_key   TEXT NOT NULL,
    concurrency_limit BIGINT NOT NULL,
    status            TEXT NOT NULL,
    reasons           TEXT NOT NULL,
    error             TEXT NOT NULL,
    failed_path       TEXT NOT NULL,
    ended_at          BIGINT NOT NULL,
    wake_at           BIGINT,
    quarantined       TEXT NOT NULL DEFAULT '',
    updated_at        BIGINT NOT NULL,
    ended             BIGINT NOT NULL,
    total             BIGINT NOT NULL,
    seq               BIGINT NOT NULL,
    digest            BYTEA NOT NULL,
    epoch             BIGINT NOT NULL,
    driver            TEXT NOT NULL
);
CREATE INDEX executions_wake ON executions (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX executions_status ON executions (status, num);
CREATE INDEX executions_driver ON executions (driver) WHERE driver <> '';
CREATE INDEX executions_parent ON executions (parent_id) WHERE parent_id <> '';
CREATE INDEX executions_concurrency ON executions USING hash (concurrency_key) WHERE concurrency_key <> '';

CREATE TABLE events (
    execution BIGINT NOT NULL,
    seq       BIGINT NOT NULL,
    version   INTEGER NOT NULL,
    body      BYTEA NOT NULL,
    digest    BYTEA NOT NULL,
    PRIMARY KEY (execution, seq)
);

CREATE TABLE snapshots (
    execution BIGINT PRIMARY KEY,
    seq       BIGINT NOT NULL,
    version   INTEGER NOT NULL,
    chain     BYTEA NOT NULL,
    body      BYTEA NOT NULL,
    digest    BYTEA NOT NULL
);

CREATE TABLE blobs (
    digest TEXT PRIMARY KEY,
    body   BYTEA NOT NULL
);

CREATE TABLE blob_uses (
    execution BIGINT NOT NULL,
    digest    TEXT NOT NULL,
    PRIMARY KEY (execution, digest)
);

-- Commands from any process. `outcome` is empty until the execution has handled it.
CREATE TABLE inbox (
    num          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    execution_id TEXT NOT NULL,
    verb         TEXT NOT NULL,
    at           BIGINT NOT NULL,
    by           TEXT NOT NULL,
    arguments    BYTEA NOT NULL,
    outcome      TEXT NOT NULL DEFAULT '',
    text         TEXT NOT NULL DEFAULT '',
    seq          BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX inbox_pending ON inbox (execution_id, num) WHERE outcome = '';

CREATE TABLE cache (
    key        TEXT PRIMARY KEY,
    output     BYTEA NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX cache_expiry ON cache (expires_at);

-- Who is alive: a driver's lease runs out by the server's clock unless it is renewed.
CREATE TABLE leases (
    driver TEXT PRIMARY KEY,
    until  TIMESTAMPTZ NOT NULL,
    length INTERVAL NOT NULL
);
