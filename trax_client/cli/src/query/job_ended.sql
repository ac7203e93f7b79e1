-- An ended job, for one that is queued in its place: what its run and its dead letter keep, and
-- whether its manifest is here. A unique key that the job itself still keeps alive (unique_for)
-- stays with it. $1 the job.
select
    r.task,
    r.input,
    r.group_name,
    r.priority::int as priority,
    r.queued_at,
    r.manifest,
    m.name is not null as has_manifest,
    d.max_retries,
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
    d.trace
from trax.run r
left join trax.manifest m on m.manifest_id = r.manifest_id
left join trax.dead_letter d on d.job_id = r.job_id
where r.job_id = $1
    and r.final
