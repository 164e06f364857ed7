-- What no chain covers gets a digest of its own. In the inbox it is over the command until there is an answer, and then
-- over the answer. Rows from before have none and are taken as they are.

ALTER TABLE inbox ADD COLUMN seal BLOB NOT NULL DEFAULT x'';
ALTER TABLE cache ADD COLUMN seal BLOB NOT NULL DEFAULT x'';
