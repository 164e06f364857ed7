-- name: insert_execution
-- A new head; a clash on the id or on (owner, key) writes nothing, and find_clash says with whom. A number
-- is never given twice: somebody may have been asleep since the one who had it was deleted.
INSERT INTO executions (num, id, name, kind, title, owner, key, labels, parent_id, created_at, concurrency_key,
    concurrency_limit, status, reasons, error, failed_path, ended_at, wake_at, updated_at, ended, total, seq, digest,
    epoch, driver, held, forked_from)
VALUES ((SELECT coalesce(max(last), 0) + 1 FROM (
        SELECT max(num) AS last FROM executions UNION ALL SELECT max(num) FROM deleted
    )), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
RETURNING num

-- name: find_clash
SELECT id FROM executions WHERE id = ? OR (owner = ? AND key = ? AND key <> '')

-- name: find_num
SELECT num FROM executions WHERE id = ?

-- name: find_place
SELECT num, seq FROM executions WHERE id = ?

-- name: advance
-- The fence: nothing is written unless the epoch is still ours and no event is missing or extra.
UPDATE executions SET seq = ?, digest = ?, updated_at = ?, ended = ?, total = ?
WHERE num = ? AND epoch = ? AND seq = ?

-- name: advance_many
-- The same for many executions at once; the ones that still were ours come back.
UPDATE executions SET seq = entry.column2, digest = entry.column3, updated_at = entry.column4,
    ended = entry.column5, total = entry.column6
FROM (VALUES :rows) AS entry
WHERE executions.num = entry.column1 AND executions.epoch = entry.column7 AND executions.seq = entry.column8
RETURNING executions.num

-- name: check_fence
UPDATE executions SET seq = seq WHERE num = ? AND epoch = ? AND seq = ?

-- name: change_head
-- A command that came in meanwhile has set wake_at to -1; as long as it has no answer, that must not be overwritten.
UPDATE executions SET status = ?1, ended_at = ?3, reasons = ?4, error = ?5, failed_path = ?6,
    wake_at = CASE WHEN EXISTS (
        SELECT 1 FROM inbox WHERE inbox.execution_id = executions.id AND inbox.outcome = ''
    ) AND ?2 IS DISTINCT FROM 0 THEN -1 ELSE ?2 END
WHERE num = ?7

-- name: release
UPDATE executions SET driver = '' WHERE num = ?

-- name: insert_events
INSERT INTO events (execution, seq, version, body, digest) VALUES :rows

-- name: insert_blob
INSERT INTO blobs (digest, body) VALUES (?, ?) ON CONFLICT DO NOTHING

-- name: insert_blob_use
INSERT INTO blob_uses (execution, digest) VALUES (?, ?) ON CONFLICT DO NOTHING

-- name: put_snapshot
INSERT OR REPLACE INTO snapshots (execution, seq, version, chain, body, digest) VALUES (?, ?, ?, ?, ?, ?)

-- name: expire_cache
DELETE FROM cache WHERE key IN (SELECT key FROM cache WHERE expires_at <= ? LIMIT 100)

-- name: put_cache
INSERT OR REPLACE INTO cache (key, output, expires_at, seal) VALUES (?, ?, ?, ?)

-- name: evict_cache
-- Keeps what expires last, up to the caps. Marks hold nothing, and are not given away before their time.
DELETE FROM cache WHERE key IN (
    SELECT key FROM (
        SELECT key, sum(length(output)) OVER latest AS bytes, row_number() OVER latest AS place
        FROM cache WHERE length(output) > 0 WINDOW latest AS (ORDER BY expires_at DESC, key)
    ) AS kept WHERE bytes > ? OR place > ?
)

-- name: put_mark
-- Changes a row only for whoever comes first, or after the last one's time.
INSERT INTO cache (key, output, expires_at, seal) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET expires_at = excluded.expires_at, seal = excluded.seal WHERE expires_at <= ?

-- name: read_row
-- Keys come as bytes, so that one that is no text can be named.
SELECT CAST(key AS BLOB), version, value, seal FROM keyed WHERE space = ? AND key = ?

-- name: read_rows
SELECT CAST(key AS BLOB), version, value, seal FROM keyed
WHERE space = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?

-- name: all_rows
SELECT space, CAST(key AS BLOB), version, value, seal FROM keyed

-- name: put_row
INSERT OR REPLACE INTO keyed (space, key, version, value, seal) VALUES (?, ?, ?, ?, ?)

-- name: delete_row
DELETE FROM keyed WHERE space = ? AND key = ?

-- name: claim
-- One driver at a time, and at most `concurrency_limit` running executions of one concurrency key.
UPDATE executions SET epoch = epoch + 1, driver = :driver
WHERE id = :id AND driver = :replacing AND quarantined = '' AND (held = '' OR NOT :to_drive)
  AND (concurrency_key = '' OR :replacing <> '' OR NOT :to_drive OR (
      SELECT count(*) FROM executions AS other
      WHERE other.concurrency_key = executions.concurrency_key AND other.driver <> '' AND other.num <> executions.num
  ) < concurrency_limit)
RETURNING epoch, num

-- name: is_there
-- Whether it can be told anything: what was deleted would never answer, and the command would wait for ever.
SELECT 1 FROM executions WHERE id = ?

-- name: insert_command
INSERT INTO inbox (id, execution_id, verb, at, by, arguments, seal) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: wake
-- A command has arrived: somebody should look at this execution, and be it only to say that it is over. -1 says so;
-- 0, that it should be driven anyway, stays.
UPDATE executions SET wake_at = CASE WHEN wake_at = 0 THEN 0 ELSE -1 END WHERE id = ?
  AND EXISTS (SELECT 1 FROM inbox WHERE inbox.execution_id = executions.id AND inbox.outcome = '')

-- name: answer_command
UPDATE inbox SET outcome = ?, text = ?, seq = ?, seal = ? WHERE id = ? AND outcome = ''

-- name: answer_too_late
-- What another execution said to one that has ended, or is not here: nobody will ever look, so it is answered at once.
UPDATE inbox SET outcome = 'unchanged', text = ?2, seal = ?3
WHERE id = ?1 AND outcome = ''
  AND NOT EXISTS (SELECT 1 FROM executions WHERE executions.id = inbox.execution_id AND executions.ended_at = 0)

-- name: refuse_spoilt
UPDATE inbox SET outcome = 'refused', text = ?, seq = 0, seal = x'' WHERE num = ? AND outcome = ''

-- name: quarantine_receiver
UPDATE executions SET quarantined = ?
WHERE id = (SELECT execution_id FROM inbox WHERE num = ?) AND quarantined = ''

-- name: tidy_inbox
-- Forget commands that are older than `before`, of executions that ended before it. Looks at one stretch of so many
-- rows, another one each time, so that it takes no longer in a large store.
WITH stretch AS (SELECT :at % (coalesce(max(num), 0) / :rows + 1) * :rows AS first FROM inbox)
DELETE FROM inbox
WHERE num > (SELECT first FROM stretch) AND num <= (SELECT first FROM stretch) + :rows AND at < :before
  AND NOT EXISTS (
      SELECT 1 FROM executions
      WHERE executions.id = inbox.execution_id AND (executions.ended_at = 0 OR executions.ended_at >= :before)
  )

-- name: read_answer
SELECT id, outcome, text, seq, seal FROM inbox WHERE id = ? AND outcome <> ''

-- name: read_command
SELECT id, execution_id, verb, at, by, arguments FROM inbox WHERE id = ?

-- name: pending_all
-- Texts come as bytes, so that one that is none spoils nobody else's row.
SELECT num, CAST(id AS BLOB), CAST(execution_id AS BLOB), CAST(verb AS BLOB), at, CAST(by AS BLOB), arguments, seal
FROM inbox WHERE outcome = '' AND (:after = '' OR num > (SELECT num FROM inbox WHERE id = :after))
ORDER BY num LIMIT 1000

-- name: pending_some
SELECT num, CAST(id AS BLOB), CAST(execution_id AS BLOB), CAST(verb AS BLOB), at, CAST(by AS BLOB), arguments, seal
FROM inbox
WHERE outcome = '' AND execution_id IN (SELECT value FROM json_each(?))
ORDER BY num

-- name: head_columns
SELECT id, name, kind, created_at, status, title, owner, key, labels, parent_id, updated_at, ended_at, wake_at,
    reasons, error, failed_path, ended, total, concurrency_key, concurrency_limit, seq, digest, epoch, driver,
    quarantined, held, forked_from
FROM executions

-- name: count
SELECT count(*) FROM executions

-- name: head_nums
SELECT num FROM executions

-- name: head_id_bytes
SELECT CAST(id AS BLOB) FROM executions WHERE num = ?

-- name: claimable
-- Appended to head_columns; `drivers` are those known to be dead, and '' for nobody. What one of them holds is listed
-- whether it is due or not, so that it can be let go of. An execution whose concurrency key is full is left out, so that
-- it cannot block the rest.
WHERE num IN (
    SELECT num FROM executions
    WHERE driver <> '' AND driver IN (SELECT value FROM json_each(:drivers)) AND quarantined = '' AND held = ''
    UNION ALL
    SELECT num FROM (
        SELECT num FROM executions AS due
        WHERE wake_at <= :now AND driver = '' AND quarantined = '' AND held = ''
          AND '' IN (SELECT value FROM json_each(:drivers))
          AND (concurrency_key = '' OR (
              SELECT count(*) FROM executions AS other
              WHERE other.concurrency_key = due.concurrency_key AND other.driver <> ''
          ) < concurrency_limit)
        ORDER BY wake_at, num LIMIT :limit
    )
)
ORDER BY coalesce(wake_at, :now), num LIMIT :limit

-- name: drivers
SELECT DISTINCT driver FROM executions WHERE driver <> ''

-- name: read_snapshot
SELECT seq, version, chain, body, digest FROM snapshots WHERE execution = ?

-- name: read_events
SELECT seq, version, body, digest FROM events WHERE execution = ? AND seq > ? ORDER BY seq LIMIT ?

-- name: read_digest
SELECT digest FROM events WHERE execution = ? AND seq = ?

-- name: read_blob
SELECT body FROM blobs WHERE digest = ?

-- name: read_cache
SELECT output, expires_at, seal FROM cache WHERE key = ? AND expires_at > ?

-- name: find
-- The plus sign makes SQLite walk the narrow index of ids instead of the wide table.
SELECT id FROM executions
WHERE substr(id, 1, length(:fragment)) = :fragment OR substr(id, -length(:fragment)) = :fragment
ORDER BY +num DESC LIMIT :limit

-- name: quarantine
UPDATE executions SET quarantined = ? WHERE id = ?

-- name: hold
UPDATE executions SET held = :why WHERE id IN (SELECT value FROM json_each(:ids))

-- name: hold_undriven
UPDATE executions SET held = :why WHERE id IN (SELECT value FROM json_each(:ids)) AND ended_at = 0
  AND (held <> '' OR driver IN (SELECT value FROM json_each(:free)))

-- name: family
-- Executions and their descendants, root by root in the order asked for, the deepest first, and whether each is still
-- needed: by itself, as long as it has not ended; by its parent, or by an execution that was made from it and may still
-- look up what its children did. What was set aside can never end, and needs nothing any more. That a parent or an
-- origin is not empty is said for the sake of the partial indexes: without it they are not used.
WITH RECURSIVE family (place, num, id, parent_id, is_over, seq, depth) AS (
    SELECT root.key, own.num, own.id, own.parent_id, own.ended_at <> 0 OR own.quarantined <> '', own.seq, 0
    FROM json_each(:ids) AS root CROSS JOIN executions AS own ON own.id = root.value
    UNION ALL
    SELECT place, child.num, child.id, child.parent_id, child.ended_at <> 0 OR child.quarantined <> '', child.seq,
        depth + 1
    FROM family CROSS JOIN executions AS child ON child.parent_id = family.id AND child.parent_id <> ''
    WHERE depth < 1000
)
SELECT place, num, id, seq, NOT is_over
    OR EXISTS (
        SELECT 1 FROM executions AS parent
        WHERE parent.id = family.parent_id AND parent.ended_at = 0 AND parent.quarantined = ''
    )
    OR EXISTS (
        SELECT 1 FROM executions AS fork
        WHERE fork.forked_from = family.id AND fork.forked_from <> '' AND fork.ended_at = 0 AND fork.quarantined = ''
    )
FROM family ORDER BY place, depth DESC, num DESC

-- name: note_deleted
INSERT INTO deleted (num, id) SELECT num, id FROM executions WHERE num IN (SELECT value FROM json_each(:nums))

-- name: delete_executions
DELETE FROM executions WHERE num IN (SELECT value FROM json_each(:nums))

-- name: delete_events
DELETE FROM events WHERE execution IN (SELECT value FROM json_each(:nums))

-- name: delete_snapshots
DELETE FROM snapshots WHERE execution IN (SELECT value FROM json_each(:nums))

-- name: delete_unshared_blobs
-- Those that nobody else uses.
DELETE FROM blobs WHERE digest IN (
    SELECT digest FROM blob_uses AS ours WHERE execution IN (SELECT value FROM json_each(:nums)) AND NOT EXISTS (
        SELECT 1 FROM blob_uses AS other
        WHERE other.digest = ours.digest AND other.execution NOT IN (SELECT value FROM json_each(:nums))
    )
)

-- name: delete_blob_uses
DELETE FROM blob_uses WHERE execution IN (SELECT value FROM json_each(:nums))

-- name: delete_pending
DELETE FROM inbox WHERE outcome = '' AND execution_id IN (SELECT value FROM json_each(:ids))

-- name: delete_answered
DELETE FROM inbox WHERE outcome <> '' AND execution_id IN (SELECT value FROM json_each(:ids))

-- name: read_deleted
SELECT id FROM deleted WHERE id <> ''

-- name: forget_deleted
UPDATE deleted SET id = '' WHERE id IN (SELECT value FROM json_each(?)) AND id <> ''

-- name: drop_forgotten
-- All but the last, whose number must not be given again.
DELETE FROM deleted WHERE id = '' AND num < (SELECT max(num) FROM deleted)

-- name: hold_unfinished
UPDATE executions SET held = ? WHERE ended_at = 0 AND held = ''

-- name: count_held
SELECT count(*) FROM executions WHERE ended_at = 0 AND held <> ''

-- name: drop_drivers
UPDATE executions SET driver = '' WHERE driver <> ''

-- name: sound_heads
-- All but those that are known to be damaged.
SELECT num, id, digest FROM executions WHERE quarantined = '' ORDER BY num

-- name: all_blobs
SELECT digest, body FROM blobs
