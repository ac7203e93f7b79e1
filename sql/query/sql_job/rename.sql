-- Gives statements the names that their roles have now; returns a row for each that has changed.
with role as materialized (
    select a.rolname::text as name, a.oid::bigint::text as number
    from pg_catalog.pg_roles a
), renamed_manifest as (
    update trax.manifest m
    set run_as = r.name, input = m.input || pg_catalog.jsonb_build_object('run_as', r.name)
    from role r
    where m.run_as operator(pg_catalog.<>) r.name
        and m.input operator(pg_catalog.->>) 'role_oid' = r.number
    returning m.manifest_id
), renamed_waiting as (
    update trax.work_queue q
    set run_as = r.name,
        input = q.input || pg_catalog.jsonb_build_object('run_as', r.name),
        lane_id = trax.sql_lane_of(q.group_name, r.name)
    from role r
    where q.run_as operator(pg_catalog.<>) r.name
        and q.input operator(pg_catalog.->>) 'role_oid' = r.number
    returning q.job_id
), renamed_lease as (
    update trax.lease l
    set run_as = r.name,
        input = l.input || pg_catalog.jsonb_build_object('run_as', r.name),
        lane_id = trax.sql_lane_of(l.group_name, r.name)
    from role r
    where l.run_as operator(pg_catalog.<>) r.name
        and l.input operator(pg_catalog.->>) 'role_oid' = r.number
    returning l.job_id
), renamed_letter as (
    update trax.dead_letter d
    set run_as = r.name, input = d.input || pg_catalog.jsonb_build_object('run_as', r.name)
    from role r
    where d.run_as operator(pg_catalog.<>) r.name
        and d.input operator(pg_catalog.->>) 'role_oid' = r.number
    returning d.id
)
select 1
from renamed_waiting
union all
select 1
from renamed_manifest
