-- Records how far the clock is believed.
insert into trax.believed_clock (shown_at, believed_at, uptime, boot)
values ($shown_at, $believed_at, $uptime, $boot)
on conflict (one_row) do update
set shown_at = excluded.shown_at, believed_at = excluded.believed_at, uptime = excluded.uptime, boot = excluded.boot
