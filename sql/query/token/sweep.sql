-- Removes tokens that expired before $expired_before, of $at_most that follow ($name, $slot), and
-- returns where it stopped.
with looked as (
    select t.name, t.slot, t.expires_at
    from trax.concurrency_token t
    where (t.name, t.slot) > ($name, $slot)
    order by t.name, t.slot
    limit $at_most
),
removed as (
    delete from trax.concurrency_token t
    where t.ctid = any (array(
        select e.ctid
        from looked l
        join trax.concurrency_token e on e.name = l.name and e.slot = l.slot
        where e.expires_at < $expired_before
        for update of e skip locked
    ))
)
select l.name, l.slot
from looked l
order by l.name desc, l.slot desc
limit 1
