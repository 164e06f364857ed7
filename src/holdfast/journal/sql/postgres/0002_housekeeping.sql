-- Holding and tidying: why nobody may drive an execution, what it was made from, and what must be found to delete one.

ALTER TABLE executions ADD COLUMN held TEXT NOT NULL DEFAULT '';
ALTER TABLE executions ADD COLUMN forked_from TEXT NOT NULL DEFAULT '';
CREATE INDEX executions_forks ON executions (forked_from) WHERE forked_from <> '';

UPDATE executions SET forked_from = coalesce((
    SELECT substring(convert_from(body, 'UTF8') FROM '"forked_from":\{"id":"([^"]*)"')
    FROM events WHERE execution = num AND events.seq = 1
), '');

-- Executions that were deleted: their files may still lie about.
CREATE TABLE deleted (
    num BIGINT PRIMARY KEY,
    id  TEXT NOT NULL
);

-- Whose blob is it? And whose commands were answered?
CREATE INDEX blob_uses_digest ON blob_uses (digest);
CREATE INDEX inbox_answered ON inbox (execution_id) WHERE outcome <> '';

-- Every reference counts as a use, also to what a child or the origin of a fork had written.
INSERT INTO blob_uses (execution, digest)
SELECT events.execution, blobs.digest
FROM events
CROSS JOIN LATERAL regexp_matches(convert_from(body, 'UTF8'), '\{"holdfast":"blob","digest":"([0-9a-f]{32})"', 'g') AS found
JOIN blobs ON blobs.digest = found[1]
ON CONFLICT DO NOTHING;
