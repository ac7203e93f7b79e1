-- Deletes a rate and its closures.
with opened as (
    delete from trax.rate_closure c
    where c.rate = $name
)
delete from trax.rate r
where r.name = $name
