-- Returns the rates, and how much each allows now. $1 limit.
select
    r.name,
    r.allowed,
    r.period::text as period,
    r.burst,
    r.available,
    r.free_at,
    nullif(r.closed_until, 'infinity') as closed_until,
    coalesce(r.closed_until = 'infinity', false) as closed_for_good,
    r.waiting
from trax.rate_state r
order by r.name
limit $1
