-- Makes the daily partitions of trax.run ahead and drops those past retention. $1 now, $2 keep what
-- ended since
select trax.make_run_partitions($1, 3), trax.drop_run_partitions($2)
