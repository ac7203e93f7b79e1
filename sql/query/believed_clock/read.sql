-- Returns how far the clock was believed when that was last recorded.
select b.shown_at, b.believed_at, b.uptime, b.boot
from trax.believed_clock b
