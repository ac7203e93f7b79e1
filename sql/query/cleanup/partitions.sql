-- Creates the daily partitions of trax.run ahead and drops those past retention.
select trax.make_run_partitions($now, 3) as made, trax.drop_run_partitions($keep_since) as dropped
