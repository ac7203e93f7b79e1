-- What the end of a job means for its manifest. Side by side, ascending by id: $1 manifests, $2 whether a job
-- completed, $3 whether the occurrence is done (completed or cancelled; false is a dead letter). $4 now.
-- Gives the manifests that have had their one run.
update trax.manifest_state s
set
    last_success_at = case when o.succeeded then $4 else s.last_success_at end,
    next_run_at = case
        when s.parked_on in ('disabled', 'group_disabled', 'dead_letter', 'ended') then null
        -- Months and days are counted on the wall, hours and less as time that passes.
        when m.every is not null and o.done then case
            when date_trunc('day', m.every) = interval '0' then $4 + m.every
            else timezone(m.timezone, timezone(m.timezone, $4) + date_trunc('day', m.every))
                + (m.every - date_trunc('day', m.every))
        end
        when m.every is not null and s.parked_on = 'outcome' then $4
        when s.parked_on in ('queued', 'executing') then s.parked_due_at
        else s.next_run_at
    end,
    parked_on = case
        when s.parked_on in ('disabled', 'group_disabled', 'dead_letter', 'ended') then s.parked_on
        when m.every is not null then null
        when s.parked_on = 'outcome' then case when o.done then 'ended' else s.parked_on end
    end,
    parked_since = case
        when s.parked_on in ('disabled', 'group_disabled', 'dead_letter', 'ended') then s.parked_since
        when s.parked_on = 'outcome' and m.every is null then $4
    end
from unnest($1, $2, $3) as o (manifest_id, succeeded, done)
join trax.manifest m on m.manifest_id = o.manifest_id
where s.manifest_id = o.manifest_id
returning s.manifest_id, m.run_at is not null and s.parked_on is not distinct from 'ended'
