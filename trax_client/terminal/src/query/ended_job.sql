-- The options of an ended job, as text: from its run and its dead letter, and the manifest that it
-- came from, if that exists here. The dead letter counts if it is open, or went to another shard
-- with its group. A unique key that the job itself still keeps alive (unique_for) is left out. $1
-- job id.
select
    m.name as manifest,
    r.task,
    case when r.task <> 'sql' then r.input::text end as input,
    r.group_name,
    r.priority::text as priority,
    d.max_retries::text as max_retries,
    d.timeout::text as timeout,
    d.retry_delay::text as retry_delay,
    case
        when not exists (
            select
            from trax.unique_key k
            where k.key = d.unique_key
                and k.job_id = d.job_id
        )
            then d.unique_key
    end as unique_key,
    d.concurrency_key,
    d.trace::text as trace,
    case when r.task = 'sql' then r.input ->> 'command' end as command,
    d.run_as,
    case
        when d.status = 'awaiting_intervention'
            or d.status = 'acknowledged' and d.resolution_note ~ '^moved to shard [0-9]+$'
            then d.id::text
    end as letter,
    r.version,
    r.rate,
    r.rate_key,
    r.cost::text as cost,
    d.requeued_job_id,
    r.manifest as came_from,
    pg_catalog.to_json(r.queued_at) #>> '{}' as queued_at
from trax.run r
left join trax.manifest m on m.manifest_id = r.manifest_id
left join trax.dead_letter d on d.job_id = r.job_id
where r.job_id = $1::bigint
    and r.final
