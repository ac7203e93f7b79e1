-- How many more jobs of a concurrency key may run. $1 key, $2 group
select coalesce((select g.max_per_key from trax.manifest_group g where g.name = $2), 1) - (
    select count(*)
    from trax.lease l
    where l.concurrency_key = $1
)
