-- Returns the children of a job as they are now, in the order in which they were spawned. Outputs
-- and errors that are together larger than $bytes are left out.
with child as materialized (
    select s.step_id, s.step, (s.output #>> '{}')::bigint as job_id
    from trax.step s
    where s.job_id = $job_id
        and s.kind = 'child'
), state as materialized (
    select c.step_id, c.step, c.job_id, j.state, j.output, j.error
    from child c
    left join lateral (
        select 'in_progress' as state, null::jsonb as output, null::text as error
        from trax.lease l
        where l.job_id = c.job_id
        union all
        select 'queued', null, null
        from trax.work_queue q
        where q.job_id = c.job_id
        union all
        select r.state, r.output, r.error
        from trax.run r
        where r.job_id = c.job_id
            and r.final
        limit 1
    ) j on true
), size as materialized (
    select coalesce(sum(octet_length(s.output::text)), 0) + coalesce(sum(octet_length(s.error)), 0) > $bytes as is_too_much
    from state s
)
select coalesce(
    jsonb_agg(
        jsonb_build_object('step', s.step, 'job_id', s.job_id, 'state', s.state)
        || case
            when z.is_too_much then jsonb_build_object('left_out', true)
            else jsonb_build_object('output', s.output, 'error', s.error)
        end
        order by s.step_id
    ),
    '[]'
) as children
from state s
cross join size z
