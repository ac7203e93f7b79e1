-- Takes waiting jobs out of their lanes until a job of their concurrency key ends. $1 their ctids
update trax.work_queue q
set waits_for = 'key'
where q.ctid = any ($1)
