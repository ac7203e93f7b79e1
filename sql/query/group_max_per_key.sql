-- How many jobs of one concurrency key a group allows. $1 group
select coalesce((select g.max_per_key from trax.manifest_group g where g.name = $1), 1)
