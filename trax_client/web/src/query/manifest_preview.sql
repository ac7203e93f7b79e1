-- When a manifest fires next. $1 its name, $2 how often.
select p.run_at, p.local_time, p.note
from trax.preview(name => $1, count => $2) p
