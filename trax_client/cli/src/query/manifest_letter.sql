-- The dead letter that stops the schedule of a manifest. $1 name.
select s.dead_letter_id as id, pg_catalog.left(coalesce(s.last_error, s.reason), 200) as error
from trax.stopped_schedule s
where s.manifest = $1
