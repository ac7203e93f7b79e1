-- Lets all jobs of a group into their lanes that are behind a concurrency key; claims sort them out anew. $1 group
update trax.work_queue q
set waits_for = null
where q.waits_for = 'key'
    and q.group_name = $1
