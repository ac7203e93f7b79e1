-- Locks the definitions of manifests that run once, before their states: their outcome may switch them off. $1 manifests
select m.manifest_id
from trax.manifest m
where m.manifest_id = any ($1)
    and m.run_at is not null
order by m.manifest_id
for update
