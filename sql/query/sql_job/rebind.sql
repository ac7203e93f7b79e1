-- Binds the statements of a copy to the roles that have the names here: a name without a role
-- belongs to the first role that gets it.
with rebound_manifest as (
    update trax.manifest m
    set input = trax.input_here(m.input, m.run_as)
    where m.run_as is not null
), rebound_waiting as (
    update trax.work_queue q
    set input = trax.input_here(q.input, q.run_as)
    where q.run_as is not null
), rebound_lease as (
    update trax.lease l
    set input = trax.input_here(l.input, l.run_as)
    where l.run_as is not null
)
update trax.dead_letter d
set input = trax.input_here(d.input, d.run_as)
where d.run_as is not null
