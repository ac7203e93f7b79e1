-- Takes a session lock under a random number, which is therefore free. While the lock is held, the
-- session is alive.
select k.key, pg_catalog.pg_try_advisory_lock(k.key)
from (
    select pg_catalog.hashtextextended(pg_catalog.gen_random_uuid()::text, 0) as key
    offset 0
) k
