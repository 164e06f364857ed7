-- Small rows with a key and a version, for what is kept beside the journal. The row of a space with an empty key holds the
-- highest version of all that were deleted there, so that no key gets a version twice.

CREATE TABLE keyed (
    space   TEXT NOT NULL,
    key     TEXT NOT NULL,
    version INTEGER NOT NULL,
    value   BLOB NOT NULL,
    seal    BLOB NOT NULL,
    PRIMARY KEY (space, key)
) WITHOUT ROWID;
