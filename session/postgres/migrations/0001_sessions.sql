-- Times are milliseconds since the epoch. JSON is json, never jsonb: json keeps
-- \u0000, lone surrogates and the order of keys. Keys compare by their bytes, as
-- in the other stores.

CREATE TABLE sessions (
  tenant       text   COLLATE "C" NOT NULL,
  id           text   COLLATE "C" NOT NULL,
  epoch        text   NOT NULL,
  version      bigint NOT NULL,
  event_count  bigint NOT NULL,
  last_user_at bigint NOT NULL,
  state        json   NOT NULL, -- the session scope, an object
  scopes       json,            -- shared scope to id, an object
  usage        json,            -- the session's roll-up
  pending      json,            -- the calls that wait for an answer, an array
  created_at   bigint NOT NULL,
  updated_at   bigint NOT NULL,
  PRIMARY KEY (tenant, id)
);

CREATE INDEX sessions_newest ON sessions (tenant, created_at DESC, id DESC);

-- The ledger, one row a committed slice. An event's index is first_idx plus its
-- place in data, so an event is found in the last slice that begins at or
-- before its index.
CREATE TABLE slices (
  tenant        text   COLLATE "C" NOT NULL,
  session_id    text   COLLATE "C" NOT NULL,
  first_idx     bigint NOT NULL,
  count         bigint NOT NULL,
  invocation_id text   COLLATE "C" NOT NULL, -- '' for the events a session was created with
  data          json   NOT NULL,             -- an array of events
  created_at    bigint NOT NULL,
  PRIMARY KEY (tenant, session_id, first_idx)
);

-- For people and reports; the store reads slices. An event may have \u0000 or
-- half a surrogate in it, at which the operators of json fail, so the two columns
-- are cut out of its text: an event begins with its type, and a name with a quote
-- and a colon after it is no part of a string.
CREATE VIEW events AS
SELECT s.tenant, s.session_id, s.first_idx + e.place - 1 AS idx, s.invocation_id,
       substring(e.data::text FROM '"type":"([^"]*)"') AS type,
       substring(e.data::text FROM '"createdAt":([0-9]+)')::bigint AS created_at, e.data
FROM slices AS s, json_array_elements(s.data) WITH ORDINALITY AS e (data, place);

CREATE TABLE tombstones (
  tenant     text   COLLATE "C" NOT NULL,
  session_id text   COLLATE "C" NOT NULL,
  deleted_at bigint NOT NULL,
  PRIMARY KEY (tenant, session_id)
);

CREATE TABLE turns (
  tenant        text   COLLATE "C" NOT NULL,
  invocation_id text   COLLATE "C" NOT NULL,
  session_id    text   COLLATE "C" NOT NULL,
  agent         text   NOT NULL,
  lane          text   NOT NULL,
  status        text   NOT NULL,
  commit_status text   NOT NULL,
  version       bigint NOT NULL, -- the session's after the turn, 0 if nothing was kept
  attempt       bigint NOT NULL,
  failures      bigint NOT NULL,
  result        json,
  usage         json,
  created_at    bigint NOT NULL,
  started_at    bigint NOT NULL,
  finished_at   bigint NOT NULL,
  PRIMARY KEY (tenant, invocation_id)
);

CREATE INDEX turns_newest ON turns (tenant, session_id, created_at DESC, invocation_id DESC);

-- A name may hold a NUL, which text may not: it is written \0, and \ as \\.
CREATE TABLE scoped_state (
  tenant   text COLLATE "C" NOT NULL,
  scope    text COLLATE "C" NOT NULL,
  scope_id text COLLATE "C" NOT NULL,
  key      text COLLATE "C" NOT NULL,
  value    json NOT NULL,
  PRIMARY KEY (tenant, scope, scope_id, key)
);
