-- Returns whether the server's queue of notifications has room. When it is full NOTIFY fails, and
-- any role that may connect can fill it.
select pg_notification_queue_usage() < 0.9
