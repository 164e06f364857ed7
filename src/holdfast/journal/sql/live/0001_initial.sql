-- The ring of live frames. Its file is never synced and worth nothing after a crash.
-- Several processes may find it missing at the same moment, so creating it twice is no error.

CREATE TABLE IF NOT EXISTS watching (
    execution_id TEXT NOT NULL,
    until        REAL NOT NULL,
    by           INTEGER NOT NULL,
    PRIMARY KEY (execution_id, by)
);

CREATE TABLE IF NOT EXISTS frames (
    num          INTEGER PRIMARY KEY AUTOINCREMENT,
    execution_id TEXT NOT NULL,
    body         BLOB NOT NULL,
    by           INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS frames_place ON frames (execution_id, num);
