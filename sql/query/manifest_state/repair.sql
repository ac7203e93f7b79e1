-- Decides again about manifests that have been parked since before
-- $parked_before, $at_most of them.
update trax.manifest_state s
set
    next_run_at = case
        when o.parked_on = 'outcome' then case when m.run_at is null then clock_timestamp() end
        else s.parked_due_at
    end,
    next_scheduled_for = case
        when o.parked_on = 'outcome' then case when m.run_at is null then clock_timestamp() end
        else s.parked_due_at
    end,
    decided_at = case when o.parked_on = 'outcome' then clock_timestamp() else s.decided_at end,
    parked_on = case when o.parked_on = 'outcome' and m.run_at is not null then 'ended' end,
    parked_since = case when o.parked_on = 'outcome' and m.run_at is not null then clock_timestamp() end
from (
    select t.manifest_id, t.parked_on
    from trax.manifest_state t
    where t.parked_on in ('group_disabled', 'dead_letter', 'queued', 'executing', 'outcome')
        and t.parked_since < $parked_before
        and (
            t.parked_on <> 'outcome'
            or not exists (
                select
                from trax.work_queue q
                where q.manifest_id = t.manifest_id
            )
            and not exists (
                select
                from trax.lease l
                where l.manifest_id = t.manifest_id
            )
            and not exists (
                select
                from trax.dead_letter d
                where d.manifest_id = t.manifest_id
                    and d.status = 'awaiting_intervention'
            )
        )
    order by t.parked_since
    limit $at_most
    for update skip locked
) o
join trax.manifest m on m.manifest_id = o.manifest_id
where s.manifest_id = o.manifest_id
