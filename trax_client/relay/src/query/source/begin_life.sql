-- Takes a lock of this session that is free, because nobody knows its number: while it is held, the
-- session lives.
select k.key, pg_catalog.pg_try_advisory_lock(k.key)
from (
    select pg_catalog.hashtextextended(pg_catalog.gen_random_uuid()::text, 0) as key
    offset 0
) k
