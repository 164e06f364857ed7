-- What has ended, longest ago first: deleting what is old walks this and nothing else. And files that are still to remove.

CREATE INDEX executions_ended ON executions (ended_at, id) WHERE ended_at <> 0;
CREATE INDEX deleted_id ON deleted (id) WHERE id <> '';
