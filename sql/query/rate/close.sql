-- Closes a rate or a key of it, unless it is closed for longer.
insert into trax.rate_closure as c (rate, key, closed_until)
values ($name, $key, $until)
on conflict (rate, key) do update
set closed_until = excluded.closed_until
where c.closed_until < excluded.closed_until
