-- Queues an ended job anew and returns the new one. A unique key that the job itself still keeps
-- alive (unique_for) stays with it. $1 the job.
select
    case
        when m.name is not null then trax.trigger(name => m.name, input => r.input)
        else trax.enqueue(
            task => r.task,
            input => r.input,
            group_name => r.group_name,
            priority => r.priority,
            max_retries => d.max_retries,
            timeout => d.timeout,
            retry_delay => d.retry_delay,
            unique_key => case
                when not exists (
                    select
                    from trax.unique_key k
                    where k.key = d.unique_key
                        and k.job_id = d.job_id
                )
                    then d.unique_key
            end,
            concurrency_key => d.concurrency_key,
            trace => d.trace
        )
    end::text as job_id,
    m.name is not null as by_manifest
from trax.run r
left join trax.manifest m on m.manifest_id = r.manifest_id
left join trax.dead_letter d on d.job_id = r.job_id
where r.job_id = $1::bigint
    and r.final
