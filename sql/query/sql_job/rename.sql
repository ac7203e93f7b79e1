-- Updates statements to the current names of their roles; returns a row for each changed manifest
-- and waiting job. Looks up the role of each row, whose oid users may have changed: a join would
-- read all roles.
with renamed as materialized (
    select s.kind, s.id, a.rolname::text as name
    from (
        select 'manifest' as kind, m.manifest_id as id, m.run_as, m.input ->> 'role_oid' as number
        from trax.manifest m
        where m.run_as is not null
        union all
        select 'waiting', q.job_id, q.run_as, q.input ->> 'role_oid'
        from trax.work_queue q
        where q.run_as is not null
        union all
        select 'lease', l.job_id, l.run_as, l.input ->> 'role_oid'
        from trax.lease l
        where l.run_as is not null
        union all
        select 'dead letter', d.id, d.run_as, d.input ->> 'role_oid'
        from trax.dead_letter d
        where d.run_as is not null
    ) s
    cross join lateral (
        select a.rolname
        from pg_catalog.pg_authid a
        where a.oid = case
            when s.number !~ '[^0-9]' and length(s.number) between 1 and 10
                then least(s.number::bigint, 4294967295)::oid
        end
    ) a
    where s.run_as <> a.rolname
), renamed_manifest as (
    update trax.manifest m
    set run_as = n.name, input = m.input || pg_catalog.jsonb_build_object('run_as', n.name)
    from renamed n
    where n.kind = 'manifest'
        and m.manifest_id = n.id
    returning m.manifest_id
), renamed_waiting as (
    update trax.work_queue q
    set run_as = n.name,
        input = q.input || pg_catalog.jsonb_build_object('run_as', n.name),
        lane_id = trax.lane_of(q.group_name, 'sql', n.name)
    from renamed n
    where n.kind = 'waiting'
        and q.job_id = n.id
    returning q.job_id
), renamed_lease as (
    update trax.lease l
    set run_as = n.name,
        input = l.input || pg_catalog.jsonb_build_object('run_as', n.name),
        lane_id = trax.lane_of(l.group_name, 'sql', n.name)
    from renamed n
    where n.kind = 'lease'
        and l.job_id = n.id
), renamed_letter as (
    update trax.dead_letter d
    set run_as = n.name, input = d.input || pg_catalog.jsonb_build_object('run_as', n.name)
    from renamed n
    where n.kind = 'dead letter'
        and d.id = n.id
)
select 1
from renamed_waiting
union all
select 1
from renamed_manifest
