-- Takes waiting jobs out of their lanes until a job of their concurrency key or of their manifest
-- ends; $waits_for names which of the two, for each job.
update trax.work_queue q
set waits_for = b.waits_for
from unnest($tids, $waits_for) as b (tid, waits_for)
where q.ctid = b.tid
