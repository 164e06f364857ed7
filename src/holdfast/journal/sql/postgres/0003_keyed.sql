-- Small rows with a key and a version, for what is kept beside the journal. The row of a space with an empty key holds the
-- highest version of all that were deleted there, so that no key gets a version twice. Keys are ordered by code point.

CREATE TABLE keyed (
    space   TEXT COLLATE "C" NOT NULL,
    key     TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    value   BYTEA NOT NULL,
    PRIMARY KEY (space, key)
);
