-- Returns how needed jobs have ended, and their names in their graphs.
select
    j.job_id,
    (
        select r.state
        from trax.run r
        where r.job_id = j.job_id
            and r.final
        limit 1
    ) as state,
    (
        select g.name
        from trax.graph_job g
        where g.job_id = j.job_id
            and g.name is not null
        limit 1
    ) as name
from unnest($job_ids) j (job_id)
