-- Gives statements the names that their roles have now; returns a row for each manifest and waiting
-- job that has changed. Looks up the role of each row, whose number people may have changed: a
-- join would read all roles for it.
with manifest as (
    select m.manifest_id, n.name
    from trax.manifest m
    cross join lateral (
        select a.rolname::text as name
        from pg_catalog.pg_authid a
        where a.oid = case
            when m.input ->> 'role_oid' !~ '[^0-9]' and length(m.input ->> 'role_oid') between 1 and 10
                then least((m.input ->> 'role_oid')::bigint, 4294967295)::oid
        end
    ) n
    where m.run_as is not null
        and m.run_as <> n.name
), waiting as (
    select q.job_id, n.name
    from trax.work_queue q
    cross join lateral (
        select a.rolname::text as name
        from pg_catalog.pg_authid a
        where a.oid = case
            when q.input ->> 'role_oid' !~ '[^0-9]' and length(q.input ->> 'role_oid') between 1 and 10
                then least((q.input ->> 'role_oid')::bigint, 4294967295)::oid
        end
    ) n
    where q.run_as is not null
        and q.run_as <> n.name
), lease as (
    select l.job_id, n.name
    from trax.lease l
    cross join lateral (
        select a.rolname::text as name
        from pg_catalog.pg_authid a
        where a.oid = case
            when l.input ->> 'role_oid' !~ '[^0-9]' and length(l.input ->> 'role_oid') between 1 and 10
                then least((l.input ->> 'role_oid')::bigint, 4294967295)::oid
        end
    ) n
    where l.run_as is not null
        and l.run_as <> n.name
), letter as (
    select d.id, n.name
    from trax.dead_letter d
    cross join lateral (
        select a.rolname::text as name
        from pg_catalog.pg_authid a
        where a.oid = case
            when d.input ->> 'role_oid' !~ '[^0-9]' and length(d.input ->> 'role_oid') between 1 and 10
                then least((d.input ->> 'role_oid')::bigint, 4294967295)::oid
        end
    ) n
    where d.run_as is not null
        and d.run_as <> n.name
), renamed_manifest as (
    update trax.manifest m
    set run_as = n.name, input = m.input || pg_catalog.jsonb_build_object('run_as', n.name)
    from manifest n
    where m.manifest_id = n.manifest_id
    returning m.manifest_id
), renamed_waiting as (
    update trax.work_queue q
    set run_as = n.name,
        input = q.input || pg_catalog.jsonb_build_object('run_as', n.name),
        lane_id = trax.sql_lane_of(q.group_name, n.name)
    from waiting n
    where q.job_id = n.job_id
    returning q.job_id
), renamed_lease as (
    update trax.lease l
    set run_as = n.name,
        input = l.input || pg_catalog.jsonb_build_object('run_as', n.name),
        lane_id = trax.sql_lane_of(l.group_name, n.name)
    from lease n
    where l.job_id = n.job_id
    returning l.job_id
), renamed_letter as (
    update trax.dead_letter d
    set run_as = n.name, input = d.input || pg_catalog.jsonb_build_object('run_as', n.name)
    from letter n
    where d.id = n.id
    returning d.id
)
select 1
from renamed_waiting
union all
select 1
from renamed_manifest
