-- Lets the statements of a copy be those of the roles that have the names here: a name that no role
-- has yet is that of the first who gets it.
with role as materialized (
    select a.rolname::text as name, jsonb_build_object('role_oid', a.oid::bigint) as number
    from pg_roles a
), rebound_manifest as (
    update trax.manifest m
    set input = (m.input - 'role_oid') || coalesce((select r.number from role r where r.name = m.run_as), '{}')
    where m.run_as is not null
), rebound_waiting as (
    update trax.work_queue q
    set input = (q.input - 'role_oid') || coalesce((select r.number from role r where r.name = q.run_as), '{}')
    where q.run_as is not null
), rebound_lease as (
    update trax.lease l
    set input = (l.input - 'role_oid') || coalesce((select r.number from role r where r.name = l.run_as), '{}')
    where l.run_as is not null
)
update trax.dead_letter d
set input = (d.input - 'role_oid') || coalesce((select r.number from role r where r.name = d.run_as), '{}')
where d.run_as is not null
