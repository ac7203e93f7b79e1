-- The identity of this target, and its readable name: its database, and its number as a shard.
select
    t.target::text,
    pg_catalog.concat(
        pg_catalog.current_database(),
        (
            select ' (shard ' operator(pg_catalog.||) (s.seqmin operator(pg_catalog.>>) 43) operator(pg_catalog.||) ')'
            from pg_catalog.pg_sequence s
            join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) s.seqrelid
            join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
            where n.nspname operator(pg_catalog.=) 'trax'
                and c.relname operator(pg_catalog.=) 'work_queue_job_id_seq'
                and (s.seqmin operator(pg_catalog.>>) 43) operator(pg_catalog.>) 0
        )
    )
from trax_relay.target t
