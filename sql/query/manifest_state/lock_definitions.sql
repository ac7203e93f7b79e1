-- Locks the definitions that the end of a job may disable: those that run only once.
select m.manifest_id
from trax.manifest m
where m.manifest_id = any ($manifest_ids)
    and m.run_at is not null
order by m.manifest_id
for no key update
