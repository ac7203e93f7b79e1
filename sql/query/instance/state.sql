-- Returns whether the scheduler is paused.
select coalesce(bool_or(i.paused_at is not null), false)
from trax.instance i
