-- The next times of a manifest. $1 name, $2 count.
select p.run_at, p.local_time, p.note
from trax.preview(name => $1, count => $2) p
