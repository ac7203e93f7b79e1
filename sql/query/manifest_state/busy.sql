-- Locks the rows of manifests that the end of a job changes, without waiting; returns the manifests
-- that another transaction has locked.
with definitions as materialized (
    select m.manifest_id
    from trax.manifest m
    where m.manifest_id = any ($manifest_ids)
        and m.run_at is not null
    for no key update skip locked
), states as materialized (
    select s.manifest_id
    from trax.manifest_state s
    where s.manifest_id = any ($manifest_ids)
    for update skip locked
)
select m.manifest_id
from trax.manifest m
where m.manifest_id = any ($manifest_ids)
    and (
        not exists (select from states s where s.manifest_id = m.manifest_id)
        or m.run_at is not null and not exists (select from definitions d where d.manifest_id = m.manifest_id)
    )
