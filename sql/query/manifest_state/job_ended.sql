-- Applies the end of jobs to their manifests; all but $now are parallel arrays. $succeeded is
-- whether a job completed, $done whether the occurrence is done (true: completed or cancelled;
-- false: a dead letter, after which it is still done if the manifest continues). A manifest that
-- runs only once has had its run when no job of its occurrence is left: another may have been
-- triggered by hand. Returns the manifests, and whether they have had their only run.
update trax.manifest_state s
set
    last_success_at = case when o.succeeded then $now else s.last_success_at end,
    next_scheduled_for = n.scheduled_for,
    next_run_at = n.scheduled_for + case
        when n.scheduled_for is not distinct from s.next_scheduled_for then s.next_run_at - s.next_scheduled_for
        when n.scheduled_for is not distinct from s.parked_due_at then interval '0'
        else coalesce(random() * m.variance, interval '0')
    end,
    decided_at = case
        when n.scheduled_for is distinct from s.next_scheduled_for and n.scheduled_for is distinct from s.parked_due_at then $now
        else s.decided_at
    end,
    parked_on = n.parked_on,
    parked_since = case
        when n.parked_on is null then null
        when n.parked_on is not distinct from s.parked_on then s.parked_since
        else $now
    end
from unnest($manifest_ids, $succeeded, $done) as o (manifest_id, succeeded, done)
join trax.manifest m on m.manifest_id = o.manifest_id
join trax.manifest_state t on t.manifest_id = o.manifest_id
cross join lateral (
    select
        case
            when t.parked_on in ('disabled', 'group_disabled', 'dead_letter', 'ended') then null
            when m.every is not null and m.max_concurrency = 1 and (o.done or m.on_dead_letter = 'continue')
                then timezone('UTC', timezone('UTC', $now) + m.every)
            when m.every is not null and t.parked_on = 'outcome' then $now
            when t.parked_on in ('queued', 'executing') then t.parked_due_at
            else t.next_scheduled_for
        end,
        case
            when t.parked_on in ('disabled', 'group_disabled', 'dead_letter', 'ended') then t.parked_on
            when m.every is not null then null
            when t.parked_on = 'outcome' then case
                when (o.done or m.on_dead_letter = 'continue')
                    and not exists (
                        select
                        from trax.work_queue q
                        where q.manifest_id = o.manifest_id
                            and q.scheduled_for is not null
                    )
                    and not exists (
                        select
                        from trax.lease l
                        where l.manifest_id = o.manifest_id
                            and l.scheduled_for is not null
                    )
                    then 'ended'
                else t.parked_on
            end
        end
) as n (scheduled_for, parked_on)
where s.manifest_id = o.manifest_id
returning s.manifest_id, m.run_at is not null and s.parked_on is not distinct from 'ended' as has_had_its_run
