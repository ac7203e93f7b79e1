-- A dump carries the ids of a shard, and not where they end.
select trax.number_ids(trax.shard_of(s.last_value))
from trax.work_queue_job_id_seq s
where trax.shard_of(s.last_value) > 0
