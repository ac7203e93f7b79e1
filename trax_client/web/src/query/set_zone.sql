-- Sets the time zone of the transaction, in which times of filters are read. $1 zone.
select pg_catalog.set_config('timezone', $1, true)
