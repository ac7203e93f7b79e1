-- Takes waiting jobs out of their lanes until a job of their concurrency key or of their manifest
-- ends. $1 their ctids and $2 which of the two, side by side
update trax.work_queue q
set waits_for = b.waits_for
from unnest($1, $2) as b (tid, waits_for)
where q.ctid = b.tid
