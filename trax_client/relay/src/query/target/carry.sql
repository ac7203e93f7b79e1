-- Volatile functions in a select list run after the sort, so jobs get their ids in order.
insert into trax_relay.carried (key, source, id, job_id)
select
    (d.row ->> 'key')::uuid,
    $1::uuid,
    (d.row ->> 'id')::bigint,
    trax.enqueue(
        task => d.row ->> 'task',
        input => d.row -> 'input',
        run_at => (d.row ->> 'run_at')::timestamptz,
        group_name => d.row ->> 'group_name',
        priority => (d.row ->> 'priority')::int,
        max_retries => (d.row ->> 'max_retries')::int,
        timeout => (d.row ->> 'timeout')::interval,
        unique_key => d.row ->> 'unique_key',
        concurrency_key => d.row ->> 'concurrency_key',
        trace => nullif(d.row -> 'trace', 'null'),
        retry_delay => (d.row ->> 'retry_delay')::interval,
        unique_for => (d.row ->> 'unique_for')::interval,
        version => d.row ->> 'version',
        batch => (d.row ->> 'batch')::bigint,
        rate => d.row ->> 'rate',
        rate_key => d.row ->> 'rate_key',
        cost => (d.row ->> 'cost')::int,
        on_duplicate => d.row ->> 'on_duplicate'
    )
from (
    select x.document::jsonb as row, x.at
    from unnest($2) with ordinality x (document, at)
) d
where not exists (
    select
    from trax_relay.carried c
    where c.key operator(pg_catalog.=) (d.row ->> 'key')::uuid
)
order by d.at
