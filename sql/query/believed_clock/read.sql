-- Returns the last record of how far the clock is believed.
select b.shown_at, b.believed_at, b.uptime, b.boot
from trax.believed_clock b
