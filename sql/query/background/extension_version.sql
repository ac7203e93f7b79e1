-- Returns the version of the installed extension, if it is installed.
select e.extversion
from pg_catalog.pg_extension e
where e.extname = 'trax'
