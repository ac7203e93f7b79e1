-- Removes tokens that expired before $1, of those that follow ($2 name, $3 slot), and says where it
-- stopped. $4 at most
with looked as (
    select t.name, t.slot, t.expires_at
    from trax.concurrency_token t
    where (t.name, t.slot) > ($2, $3)
    order by t.name, t.slot
    limit $4
),
removed as (
    delete from trax.concurrency_token t
    where t.ctid = any (array(
        select e.ctid
        from looked l
        join trax.concurrency_token e on e.name = l.name and e.slot = l.slot
        where e.expires_at < $1
        for update of e skip locked
    ))
)
select l.name, l.slot
from looked l
order by l.name desc, l.slot desc
limit 1
