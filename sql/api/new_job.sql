-- New jobs as rows, for COPY and INSERT.

create function trax.new_job_handler()
returns fdw_handler
language c
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_new_job_handler';
comment on function trax.new_job_handler() is
    'Internal. Handles COPY and INSERT into trax.new_job.';
