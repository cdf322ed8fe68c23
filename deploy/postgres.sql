-- The least that each side needs. Run it as the owner of the database, after
-- `turnpool migrate`; both sides then start with STORE_MIGRATE=false.
--
--   psql -v ingress_password=… -v worker_password=… -f deploy/postgres.sql turnpool

CREATE ROLE turnpool_ingress LOGIN PASSWORD :'ingress_password';
CREATE ROLE turnpool_worker LOGIN PASSWORD :'worker_password';

GRANT USAGE ON SCHEMA public TO turnpool_ingress, turnpool_worker;
GRANT SELECT ON schema_migrations TO turnpool_ingress, turnpool_worker;

-- The ingress reads everything, creates and deletes sessions, and writes the
-- outcome of a cancelled turn.
GRANT SELECT ON sessions, slices, tombstones, turns, scoped_state, events TO turnpool_ingress;
GRANT INSERT, UPDATE, DELETE ON sessions, slices, tombstones, turns, scoped_state TO turnpool_ingress;

-- A worker commits turns. It deletes no session, no ledger and no turn.
GRANT SELECT, INSERT, UPDATE ON sessions, slices, turns TO turnpool_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON scoped_state TO turnpool_worker;
GRANT SELECT ON tombstones TO turnpool_worker;
