-- Keeps a manifest from being removed until this transaction ends. Its definition may change: a
-- session that triggers several, in any order, cannot deadlock with sessions that change them.
select m.manifest_id
from trax.manifest m
where m.name = $name
for key share
