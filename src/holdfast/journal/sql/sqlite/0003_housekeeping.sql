-- Holding and tidying: why nobody may drive an execution, what it was made from, and what must be found to delete one.

ALTER TABLE executions ADD COLUMN held TEXT NOT NULL DEFAULT '';
ALTER TABLE executions ADD COLUMN forked_from TEXT NOT NULL DEFAULT '';
CREATE INDEX executions_forks ON executions (forked_from) WHERE forked_from <> '';

UPDATE executions SET forked_from = coalesce((
    SELECT CASE WHEN json_valid(CAST(body AS TEXT)) THEN json_extract(CAST(body AS TEXT), '$.forked_from.id') END
    FROM events WHERE execution = num AND events.seq = 1
), '');

-- Executions that were deleted: their files may still lie about, and the number of the last of them is not given again.
CREATE TABLE deleted (
    num INTEGER PRIMARY KEY,
    id  TEXT NOT NULL
);

-- Whose blob is it? And whose commands were answered?
CREATE INDEX blob_uses_digest ON blob_uses (digest);
CREATE INDEX inbox_answered ON inbox (execution_id) WHERE outcome <> '';

-- Every reference counts as a use, also to what a child or the origin of a fork had written.
WITH RECURSIVE mark (text) AS (VALUES (CAST('{"holdfast":"blob","digest":"' AS BLOB))), found (execution, rest) AS (
    SELECT execution, substr(body, instr(body, text)) FROM events, mark WHERE instr(body, text)
    UNION ALL
    SELECT execution, substr(rest, instr(substr(rest, 2), text) + 1) FROM found, mark WHERE instr(substr(rest, 2), text)
)
INSERT INTO blob_uses (execution, digest)
SELECT execution, digest FROM found JOIN blobs ON digest = CAST(substr(rest, 30, 32) AS TEXT)
WHERE true ON CONFLICT DO NOTHING;
