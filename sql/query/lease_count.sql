-- How many jobs are executed, up to $1.
select count(*)
from (
    select
    from trax.lease l
    limit $1
) l
