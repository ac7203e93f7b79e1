-- Attaches the partitions of a restored dump of an older version.
select trax.attach_run_partitions()
