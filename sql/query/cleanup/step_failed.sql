-- Notes that a step of the cleanup failed; a row when that is news. $1 step, $2 its words, $3 now
with known as materialized (
    select f.error
    from trax.failed_step f
    where f.step = $1
), noted as (
    insert into trax.failed_step as f (step, error, failed_since, failed_at)
    values ($1, $2, $3, $3)
    on conflict (step) do update
    set error = excluded.error,
        failed_at = excluded.failed_at
)
select
where not exists (
    select
    from known k
    where k.error = $2
)
