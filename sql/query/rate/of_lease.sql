-- Returns the rate and the key under which a running job started: its own, or that of its group.
select coalesce(l.rate, g.rate) as rate, coalesce(l.rate_key, '') as key
from trax.lease l
left join trax.manifest_group g on g.name = l.group_name
where l.job_id = $job_id
    and l.token = $token
