-- name: watched
-- What other processes watch now.
SELECT execution_id FROM watching WHERE until > ? AND by <> ?

-- name: insert_frame
INSERT INTO frames (execution_id, body, by) VALUES (?, ?, ?)

-- name: trim_frames
-- The ring: only the newest so many stay.
DELETE FROM frames WHERE num <= (SELECT max(num) FROM frames) - ?

-- name: forget_watchers
DELETE FROM watching WHERE until < ?

-- name: announce
INSERT OR REPLACE INTO watching (execution_id, until, by) VALUES (?, ?, ?)

-- name: read_frames
SELECT num, body FROM frames WHERE execution_id = ? AND num > ? AND by <> ? ORDER BY num LIMIT ?
