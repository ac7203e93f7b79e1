-- Records that a step of the cycle failed; returns a row when the failure is new.
with known as materialized (
    select f.error
    from trax.failed_step f
    where f.step = $step
), noted as (
    insert into trax.failed_step as f (step, error, failed_since, failed_at)
    values ($step, $error, $now, $now)
    on conflict (step) do update
    set error = excluded.error,
        failed_at = excluded.failed_at
)
select
where not exists (
    select
    from known k
    where k.error = $error
)
