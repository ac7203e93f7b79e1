-- A dump contains the ids of a shard, but not their upper limit.
select trax.number_ids(trax.shard_of(s.last_value))
from trax.work_queue_job_id_seq s
where trax.shard_of(s.last_value) > 0
