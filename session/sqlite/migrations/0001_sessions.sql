-- Times are milliseconds since the epoch. JSON is text, never jsonb: text keeps
-- \u0000, lone surrogates and the order of keys.

CREATE TABLE sessions (
  tenant       TEXT    NOT NULL,
  id           TEXT    NOT NULL,
  epoch        TEXT    NOT NULL,
  version      INTEGER NOT NULL,
  event_count  INTEGER NOT NULL,
  last_user_at INTEGER NOT NULL,
  state        TEXT    NOT NULL, -- the session scope, an object
  scopes       TEXT,             -- shared scope to id, an object
  usage        TEXT,             -- the session's roll-up
  pending      TEXT,             -- the calls that wait for an answer, an array
  created_at   INTEGER NOT NULL,
  updated_at   INTEGER NOT NULL,
  PRIMARY KEY (tenant, id)
) STRICT;

CREATE INDEX sessions_newest ON sessions (tenant, created_at DESC, id DESC);

-- The ledger, one row a committed slice. An event's index is first_idx plus its
-- place in data, so an event is found in the last slice that begins at or
-- before its index.
CREATE TABLE slices (
  tenant        TEXT    NOT NULL,
  session_id    TEXT    NOT NULL,
  first_idx     INTEGER NOT NULL,
  count         INTEGER NOT NULL,
  invocation_id TEXT    NOT NULL, -- '' for the events a session was created with
  data          TEXT    NOT NULL, -- an array of events
  created_at    INTEGER NOT NULL,
  PRIMARY KEY (tenant, session_id, first_idx)
) STRICT;

-- For people and reports; the store reads slices.
CREATE VIEW events AS
SELECT s.tenant, s.session_id, s.first_idx + e.key AS idx, s.invocation_id,
       e.value ->> '$.type' AS type, e.value ->> '$.createdAt' AS created_at, e.value AS data
FROM slices AS s, json_each(s.data) AS e;

CREATE TABLE tombstones (
  tenant     TEXT    NOT NULL,
  session_id TEXT    NOT NULL,
  deleted_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, session_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE turns (
  tenant        TEXT    NOT NULL,
  invocation_id TEXT    NOT NULL,
  session_id    TEXT    NOT NULL,
  agent         TEXT    NOT NULL,
  lane          TEXT    NOT NULL,
  status        TEXT    NOT NULL,
  commit_status TEXT    NOT NULL,
  version       INTEGER NOT NULL, -- the session's after the turn, 0 if nothing was kept
  attempt       INTEGER NOT NULL,
  failures      INTEGER NOT NULL,
  result        TEXT,
  usage         TEXT,
  created_at    INTEGER NOT NULL,
  started_at    INTEGER NOT NULL,
  finished_at   INTEGER NOT NULL,
  PRIMARY KEY (tenant, invocation_id)
) STRICT;

CREATE INDEX turns_newest ON turns (tenant, session_id, created_at DESC, invocation_id DESC);

CREATE TABLE scoped_state (
  tenant   TEXT NOT NULL,
  scope    TEXT NOT NULL,
  scope_id TEXT NOT NULL,
  key      TEXT NOT NULL,
  value    TEXT NOT NULL,
  PRIMARY KEY (tenant, scope, scope_id, key)
) STRICT;
