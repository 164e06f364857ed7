-- The first schema. One row per execution (its head), append-only events, and what hangs on them.
-- Executions have a small number of their own (num) so that the event index stays narrow.

CREATE TABLE executions (
    num               INTEGER PRIMARY KEY,
    id                TEXT NOT NULL UNIQUE,
    name              TEXT NOT NULL,
    kind              TEXT NOT NULL,
    title             TEXT NOT NULL,
    owner             TEXT NOT NULL,
    key               TEXT NOT NULL,
    labels            TEXT NOT NULL,
    parent_id         TEXT NOT NULL,
    created_at        INTEGER NOT NULL,
    concurrency_key   TEXT NOT NULL,
    concurrency_limit INTEGER NOT NULL,
    status            TEXT NOT NULL,
    reasons           TEXT NOT NULL,
    error             TEXT NOT NULL,
    failed_path       TEXT NOT NULL,
    ended_at          INTEGER NOT NULL,
    wake_at           INTEGER,
    quarantined       TEXT NOT NULL DEFAULT '',
    updated_at        INTEGER NOT NULL,
    ended             INTEGER NOT NULL,
    total             INTEGER NOT NULL,
    seq               INTEGER NOT NULL,
    digest            BLOB NOT NULL,
    epoch             INTEGER NOT NULL,
    driver            TEXT NOT NULL
);
CREATE UNIQUE INDEX executions_key ON executions (owner, key) WHERE key <> '';
CREATE INDEX executions_wake ON executions (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX executions_status ON executions (status, num);
CREATE INDEX executions_driver ON executions (driver) WHERE driver <> '';
CREATE INDEX executions_parent ON executions (parent_id) WHERE parent_id <> '';
CREATE INDEX executions_concurrency ON executions (concurrency_key) WHERE concurrency_key <> '';

-- Rows are appended in the order of commits, so a batch touches few pages; the index finds one execution's events.
CREATE TABLE events (
    execution INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    body      BLOB NOT NULL,
    digest    BLOB NOT NULL
);
CREATE UNIQUE INDEX events_place ON events (execution, seq);

CREATE TABLE snapshots (
    execution INTEGER PRIMARY KEY,
    seq       INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    chain     BLOB NOT NULL,
    body      BLOB NOT NULL,
    digest    BLOB NOT NULL
);

CREATE TABLE blobs (
    digest TEXT PRIMARY KEY,
    body   BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE blob_uses (
    execution INTEGER NOT NULL,
    digest    TEXT NOT NULL,
    PRIMARY KEY (execution, digest)
) WITHOUT ROWID;

-- Commands from any process. `outcome` is empty until the execution has handled it.
CREATE TABLE inbox (
    num          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    execution_id TEXT NOT NULL,
    verb         TEXT NOT NULL,
    at           INTEGER NOT NULL,
    by           TEXT NOT NULL,
    arguments    BLOB NOT NULL,
    outcome      TEXT NOT NULL DEFAULT '',
    text         TEXT NOT NULL DEFAULT '',
    seq          INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX inbox_pending ON inbox (execution_id) WHERE outcome = '';

CREATE TABLE cache (
    key        TEXT PRIMARY KEY,
    output     BLOB NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX cache_expiry ON cache (expires_at);
