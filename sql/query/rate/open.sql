-- Opens a rate or a key of it.
delete from trax.rate_closure c
where c.rate = $name
    and c.key = $key
