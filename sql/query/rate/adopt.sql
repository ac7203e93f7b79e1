-- Lets all keys of all rates of a copy count as just used up: jobs have started in the original.
update trax.rate
set created_at = least(created_at, pg_postmaster_start_time()), changed_at = $now
