-- name: insert_execution
-- A new head; a clash on the id or on (owner, key) writes nothing, and find_clash says with whom.
INSERT INTO executions (id, name, kind, title, owner, key, key_digest, labels, parent_id, created_at, concurrency_key,
    concurrency_limit, status, reasons, error, failed_path, ended_at, wake_at, updated_at, ended, total, seq, digest,
    epoch, driver, held, forked_from)
VALUES (%(id)s, %(name)s, %(kind)s, %(title)s, %(owner)s, %(key)s, %(key_digest)s, %(labels)s, %(parent_id)s,
    %(created_at)s, %(concurrency_key)s, %(concurrency_limit)s, %(status)s, %(reasons)s, %(error)s, %(failed_path)s,
    %(ended_at)s, %(wake_at)s, %(updated_at)s, %(ended)s, %(total)s, %(seq)s, %(digest)s, %(epoch)s, %(driver)s,
    %(held)s, %(forked_from)s)
ON CONFLICT DO NOTHING
RETURNING num

-- name: find_clash
SELECT id FROM executions WHERE id = %(id)s OR key_digest = %(key_digest)s ORDER BY id <> %(id)s LIMIT 1

-- name: find_num
SELECT num FROM executions WHERE id = %s

-- name: concurrency_keys
SELECT DISTINCT concurrency_key FROM executions WHERE id = ANY(%s) AND concurrency_key <> ''

-- name: lock_keys
-- Claims under one concurrency key come one after the other, over all processes: each must see the places taken. So do
-- puts of one row, which may not be there yet to be locked. They come sorted, so that two never wait for each other.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' ' || key, 0)) FROM unnest(%s::text[]) AS key

-- name: lock_heads
-- Everything a transaction will touch, always in the same order, so that two of them do not wait for each other.
SELECT id, num FROM executions WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE

-- name: advance
-- The fence: nothing is written unless the epoch is still ours and no event is missing or extra.
UPDATE executions SET seq = %s, digest = %s, updated_at = %s, ended = %s, total = %s
WHERE num = %s AND epoch = %s AND seq = %s

-- name: check_fence
SELECT 1 FROM executions WHERE num = %s AND epoch = %s AND seq = %s

-- name: change_head
-- A command that came in meanwhile has set wake_at to -1; as long as it has no answer, that must not be overwritten.
UPDATE executions SET status = %(status)s, ended_at = %(ended_at)s, reasons = %(reasons)s, error = %(error)s,
    failed_path = %(failed_path)s,
    wake_at = CASE WHEN EXISTS (
        SELECT 1 FROM inbox WHERE inbox.execution_id = executions.id AND inbox.outcome = ''
    ) AND %(wake_at)s::bigint IS DISTINCT FROM 0 THEN -1 ELSE %(wake_at)s::bigint END
WHERE num = %(num)s

-- name: release
UPDATE executions SET driver = '' WHERE num = %s

-- name: insert_events
-- All of a transaction in one statement. (Not as a pipeline of many: after one, the server's time limit for
-- transactions that stand still does not run.)
INSERT INTO events (execution, seq, version, body, digest)
SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::integer[], %s::bytea[], %s::bytea[])

-- name: insert_blob
-- One that is there already is locked, so that nobody deletes it before our use of it counts.
INSERT INTO blobs (digest, body) VALUES (%s, %s) ON CONFLICT (digest) DO UPDATE SET digest = excluded.digest

-- name: insert_blob_use
INSERT INTO blob_uses (execution, digest) VALUES (%s, %s) ON CONFLICT DO NOTHING

-- name: put_snapshot
INSERT INTO snapshots (execution, seq, version, chain, body, digest) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (execution) DO UPDATE SET seq = excluded.seq, version = excluded.version, chain = excluded.chain,
    body = excluded.body, digest = excluded.digest

-- name: expire_cache
DELETE FROM cache WHERE key IN (
    SELECT key FROM cache WHERE expires_at <= %s ORDER BY key LIMIT 100 FOR UPDATE SKIP LOCKED
)

-- name: put_cache
INSERT INTO cache (key, output, expires_at) VALUES (%s, %s, %s)
ON CONFLICT (key) DO UPDATE SET output = excluded.output, expires_at = excluded.expires_at

-- name: evict_cache
-- Keeps what expires last, up to the caps. Marks hold nothing, and are not given away before their time.
DELETE FROM cache WHERE key IN (
    SELECT key FROM (
        SELECT key, sum(length(output)) OVER latest AS bytes, row_number() OVER latest AS place
        FROM cache WHERE length(output) > 0 WINDOW latest AS (ORDER BY expires_at DESC, key)
    ) AS kept WHERE bytes > %s OR place > %s
)

-- name: put_mark
-- Changes a row only for whoever comes first, or after the last one's time.
INSERT INTO cache AS old (key, output, expires_at) VALUES (%s, %s, %s)
ON CONFLICT (key) DO UPDATE SET expires_at = excluded.expires_at WHERE old.expires_at <= %s

-- name: read_row
SELECT key, version, value FROM keyed WHERE space = %s AND key = %s

-- name: read_rows
SELECT key, version, value FROM keyed WHERE space = %s AND key >= %s AND key < %s ORDER BY key LIMIT %s

-- name: row_versions
SELECT space, key, version FROM keyed
WHERE (space, key) IN (SELECT * FROM unnest(%s::text[], %s::text[]))

-- name: put_rows
-- Others may raise the version of a space's deleted rows at the same time: it never goes down.
INSERT INTO keyed (space, key, version, value)
SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bytea[])
ON CONFLICT (space, key) DO UPDATE SET version = greatest(keyed.version, excluded.version), value = excluded.value

-- name: delete_rows
DELETE FROM keyed WHERE (space, key) IN (SELECT * FROM unnest(%s::text[], %s::text[]))

-- name: claim
-- One driver at a time, and at most `concurrency_limit` running executions of one concurrency key.
UPDATE executions SET epoch = epoch + 1, driver = %(driver)s
WHERE id = %(id)s AND driver = %(replacing)s AND quarantined = '' AND (held = '' OR NOT %(to_drive)s)
  AND (concurrency_key = '' OR %(replacing)s <> '' OR NOT %(to_drive)s OR (
      SELECT count(*) FROM executions AS other
      WHERE other.concurrency_key = executions.concurrency_key AND other.driver <> '' AND other.num <> executions.num
  ) < concurrency_limit)
RETURNING epoch

-- name: is_there
-- Whether it can be told anything: what was deleted would never answer, and the command would wait for ever.
-- Whoever deletes it waits for us, and then takes the command with it.
SELECT 1 FROM executions WHERE id = %s FOR KEY SHARE

-- name: insert_command
INSERT INTO inbox (id, execution_id, verb, at, by, arguments) VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING

-- name: wake
-- A command has arrived: somebody should look at this execution, and be it only to say that it is over. -1 says so;
-- 0, that it should be driven anyway, stays.
UPDATE executions SET wake_at = CASE WHEN wake_at = 0 THEN 0 ELSE -1 END WHERE id = %s
  AND EXISTS (SELECT 1 FROM inbox WHERE inbox.execution_id = executions.id AND inbox.outcome = '')

-- name: answer_command
UPDATE inbox SET outcome = %s, text = %s, seq = %s WHERE id = %s AND outcome = ''

-- name: answer_too_late
-- What another execution said to one that has ended, or is not here: nobody will ever look, so it is answered at once.
UPDATE inbox SET outcome = 'unchanged', text = %(text)s
WHERE id = %(id)s AND outcome = ''
  AND NOT EXISTS (SELECT 1 FROM executions WHERE executions.id = inbox.execution_id AND executions.ended_at = 0)

-- name: tidy_inbox
-- Forget commands that are older than `before`, of executions that ended before it. Looks at one stretch of so many
-- rows, another one each time, so that it takes no longer in a large store.
WITH stretch AS (
    SELECT mod(%(at)s::bigint, coalesce(max(num), 0) / %(rows)s::bigint + 1) * %(rows)s::bigint AS first FROM inbox
), old AS (
    SELECT inbox.num FROM inbox, stretch
    WHERE inbox.num > first AND inbox.num <= first + %(rows)s::bigint AND inbox.at < %(before)s
      AND NOT EXISTS (
          SELECT 1 FROM executions
          WHERE executions.id = inbox.execution_id
            AND (executions.ended_at = 0 OR executions.ended_at >= %(before)s)
      )
    FOR UPDATE OF inbox SKIP LOCKED
)
DELETE FROM inbox WHERE num IN (SELECT num FROM old)

-- name: tell
-- Sent to everybody who listens, with the commit; `by` is us, who know already. The transaction's number is for us: should
-- the connection be lost during the commit, `transaction_status` can still be asked.
SELECT pg_notify(%(channel)s, %(by)s), txid_current()::text

-- name: transaction_status
SELECT txid_status(%s::text::bigint)

-- name: read_answer
SELECT id, outcome, text, seq FROM inbox WHERE id = %s AND outcome <> ''

-- name: read_command
SELECT id, execution_id, verb, at, by, arguments FROM inbox WHERE id = %s

-- name: pending_all
SELECT id, execution_id, verb, at, by, arguments FROM inbox
WHERE outcome = '' AND (%(after)s::text = '' OR num > (SELECT num FROM inbox WHERE id = %(after)s::text))
ORDER BY num LIMIT 1000

-- name: pending_some
SELECT id, execution_id, verb, at, by, arguments FROM inbox
WHERE outcome = '' AND execution_id = ANY(%s)
ORDER BY num

-- name: head_columns
SELECT id, name, kind, created_at, status, title, owner, key, labels, parent_id, updated_at, ended_at, wake_at,
    reasons, error, failed_path, ended, total, concurrency_key, concurrency_limit, seq, digest, epoch, driver,
    quarantined, held, forked_from
FROM executions

-- name: one_head
-- Appended to head_columns.
WHERE id = %(id)s

-- name: some_heads
-- Appended to head_columns and conditions.
ORDER BY num DESC LIMIT %(limit)s

-- name: ended_heads
-- Appended to head_columns and conditions instead.
  AND ended_at <> 0 AND (ended_at, id) > (%(ended_at)s, %(ended_id)s)
  AND ended_at < coalesce(%(ended_before)s::bigint, 9223372036854775807)
ORDER BY ended_at, id LIMIT %(limit)s

-- name: count
SELECT count(*) FROM executions

-- name: conditions
-- What is NULL is not asked for. An unknown `before` has nothing older than it. `texts`, `error`: regular expressions;
-- `label_texts`: each of the texts as it reads in JSON, NULL where it is no part of a label;
-- `labels`: how the JSON may begin or go on for each that is asked for.
WHERE (%(ids)s::text[] IS NULL OR id = ANY(%(ids)s))
  AND (%(status)s::text[] IS NULL OR status = ANY(%(status)s))
  AND (%(held)s::boolean IS NULL OR held <> '' OR (status = 'queued' AND wake_at IS NULL))
  AND (%(name)s::text IS NULL OR name = %(name)s)
  AND (%(owner)s::text IS NULL OR owner = %(owner)s)
  AND (%(parent_id)s::text IS NULL OR parent_id = %(parent_id)s)
  AND (%(forked_from)s::text IS NULL OR forked_from = %(forked_from)s)
  AND (%(failed_step)s::text IS NULL OR failed_path = %(failed_step)s)
  AND (%(error)s::text IS NULL OR error ~ %(error)s)
  AND (%(created_after)s::bigint IS NULL OR created_at >= %(created_after)s)
  AND (%(created_before)s::bigint IS NULL OR created_at < %(created_before)s)
  AND (%(ended_before)s::bigint IS NULL OR (ended_at > 0 AND ended_at < %(ended_before)s))
  AND (%(ended_at)s::bigint IS NULL OR (ended_at <> 0 AND (ended_at, id) > (%(ended_at)s::bigint, %(ended_id)s::text)))
  AND (%(before)s::text IS NULL OR num < (SELECT num FROM executions WHERE id = %(before)s))
  AND NOT EXISTS (
      SELECT 1 FROM unnest(%(firsts)s::text[], %(others)s::text[]) AS label (first, other)
      WHERE NOT (strpos(labels, label.first) = 1 OR strpos(labels, label.other) > 0)
  )
  AND NOT EXISTS (
      SELECT 1 FROM unnest(%(texts)s::text[], %(label_texts)s::text[]) AS wanted (word, in_labels)
      WHERE NOT (id ~ word OR name ~ word OR title ~ word OR owner ~ word OR error ~ word
                 OR coalesce(labels ~ in_labels, false))
  )

-- name: claimable
-- Appended to head_columns; `drivers` are those known to be dead, and '' for nobody. What one of them holds is listed
-- whether it is due or not, so that it can be let go of. An execution whose concurrency key is full is left out, so that
-- it cannot block the rest.
WHERE quarantined = '' AND held = '' AND driver = ANY(%(drivers)s) AND (
    driver <> ''
    OR (wake_at <= %(now)s AND (concurrency_key = '' OR (
        SELECT count(*) FROM executions AS other
        WHERE other.concurrency_key = executions.concurrency_key AND other.driver <> ''
    ) < concurrency_limit))
)
ORDER BY coalesce(wake_at, %(now)s), num LIMIT %(limit)s

-- name: read_snapshot
SELECT seq, version, chain, body, digest FROM snapshots WHERE execution = %s

-- name: read_events
-- A limit of NULL is none.
SELECT seq, version, body, digest FROM events WHERE execution = %s AND seq > %s ORDER BY seq LIMIT %s

-- name: read_digest
SELECT digest FROM events WHERE execution = %s AND seq = %s

-- name: read_blob
SELECT body FROM blobs WHERE digest = %s

-- name: read_cache
SELECT output FROM cache WHERE key = %s AND expires_at > %s

-- name: find
SELECT id FROM executions
WHERE left(id, length(%(fragment)s)) = %(fragment)s OR right(id, length(%(fragment)s)) = %(fragment)s
ORDER BY num DESC LIMIT %(limit)s

-- name: quarantine
UPDATE executions SET quarantined = %s WHERE id = %s

-- name: hold
UPDATE executions SET held = %s WHERE id = ANY(%s)

-- name: hold_undriven
UPDATE executions SET held = %s WHERE id = ANY(%s) AND ended_at = 0 AND (held <> '' OR driver = ANY(%s))

-- name: walk_indexes
-- For one transaction. A server that has not counted a table's rows yet would rather read all of it, again and again.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
    set_config('enable_sort', 'off', true)

-- name: family
-- Executions and their descendants, root by root in the order asked for, the deepest first, and whether each is still
-- needed: by itself, as long as it has not ended; by its parent, or by an execution that was made from it and may still
-- look up what its children did. What was set aside can never end, and needs nothing any more. That a parent or an
-- origin is not empty is said for the sake of the partial indexes: without it they are not used.
WITH RECURSIVE family (place, num, id, parent_id, is_over, seq, depth) AS (
    SELECT root.place, num, id, parent_id, ended_at <> 0 OR quarantined <> '', seq, 0
    FROM unnest(%s::text[]) WITH ORDINALITY AS root (wanted, place) JOIN executions ON id = root.wanted
    UNION ALL
    SELECT place, child.num, child.id, child.parent_id, child.ended_at <> 0 OR child.quarantined <> '', child.seq,
        depth + 1
    FROM family JOIN executions AS child ON child.parent_id = family.id AND child.parent_id <> ''
    WHERE depth < 1000
)
SELECT place, num, id, seq, NOT is_over
    OR (
        SELECT 1 FROM executions AS parent
        WHERE parent.id = family.parent_id AND parent.ended_at = 0 AND parent.quarantined = ''
    ) IS NOT NULL
    OR (
        SELECT 1 FROM executions AS fork
        WHERE fork.forked_from = family.id AND fork.forked_from <> '' AND fork.ended_at = 0 AND fork.quarantined = ''
        LIMIT 1
    ) IS NOT NULL
FROM family ORDER BY place, depth DESC, num DESC

-- name: lock_doomed
-- Those of them that nobody else has deleted by now.
SELECT num, id FROM executions WHERE num = ANY(%s) ORDER BY id FOR UPDATE

-- name: needed_after_all
SELECT 1 FROM executions WHERE forked_from = ANY(%s) AND forked_from <> '' AND ended_at = 0 AND quarantined = '' LIMIT 1

-- name: note_deleted
INSERT INTO deleted (num, id) SELECT num, id FROM executions WHERE num = ANY(%(nums)s)

-- name: delete_executions
DELETE FROM executions WHERE num = ANY(%(nums)s)

-- name: delete_events
DELETE FROM events WHERE execution = ANY(%(nums)s)

-- name: delete_snapshots
DELETE FROM snapshots WHERE execution = ANY(%(nums)s)

-- name: lock_blobs
-- Whoever is about to use one of them is waited for, and seen by the statements after this one.
SELECT digest FROM blobs
WHERE digest IN (SELECT digest FROM blob_uses WHERE execution = ANY(%s))
ORDER BY digest FOR UPDATE

-- name: delete_blob_uses
DELETE FROM blob_uses WHERE execution = ANY(%(nums)s)

-- name: delete_unused_blobs
DELETE FROM blobs
WHERE digest = ANY(%(digests)s) AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob_uses.digest = blobs.digest)

-- name: delete_commands
DELETE FROM inbox WHERE execution_id = ANY(%(ids)s)

-- name: read_deleted
SELECT id FROM deleted ORDER BY num

-- name: forget_deleted
DELETE FROM deleted WHERE id = ANY(%s)

-- name: enter
-- A server may be set up to answer before a commit is on disk; what is journaled here has to be. A process that stands
-- still in the middle of a transaction must not hold up the others for longer than its lease.
SELECT set_config('search_path', quote_ident(%(schema)s), false),
    set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), false),
    set_config('idle_in_transaction_session_timeout', %(idle_ms)s::text, false),
    set_config('lock_timeout', %(lock_ms)s::text, false)

-- name: encoding
SELECT current_setting('server_encoding')

-- name: lock_schema
-- Held by whoever looks at the schema's version until its own lease is written: nobody migrates in between.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast schema ' || %s, 0))

-- name: schema_exists
SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL

-- name: is_fresh
SELECT to_regclass('schema_version') IS NULL

-- name: read_version
SELECT max(version) FROM schema_version

-- name: write_version
INSERT INTO schema_version (version) VALUES (%s)

-- name: renew_leases
INSERT INTO leases (driver, until, length)
SELECT driver, clock_timestamp() + %(length)s, %(length)s FROM unnest(%(drivers)s::text[]) AS driver ORDER BY driver
ON CONFLICT (driver) DO UPDATE SET until = excluded.until, length = excluded.length

-- name: drop_leases
DELETE FROM leases WHERE driver = ANY(%s)

-- name: tidy_leases
-- The dead who hold nothing any more.
DELETE FROM leases WHERE driver IN (
    SELECT driver FROM leases
    WHERE until < clock_timestamp() - length
      AND NOT EXISTS (SELECT 1 FROM executions WHERE executions.driver = leases.driver)
    FOR UPDATE SKIP LOCKED
)

-- name: holders
-- Everybody who holds an execution, and whether the lease has run out. While the server was down nobody could renew,
-- so after its start everybody has the length of a lease to come back.
SELECT holder.driver, leases.driver IS NULL
    OR clock_timestamp() > greatest(leases.until, pg_postmaster_start_time() + leases.length)
FROM (SELECT DISTINCT driver FROM executions WHERE driver <> '') AS holder
LEFT JOIN leases ON leases.driver = holder.driver

-- name: living
SELECT count(*) FROM leases WHERE until > clock_timestamp()
