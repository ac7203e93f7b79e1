-- Stored rates as JSON, ordered by name: all, or those of groups. $1 names of groups.
select to_jsonb(r)
from trax.rate r
where $1::text[] is null
    or exists (
        select
        from trax.manifest_group g
        where g.name = any ($1)
            and g.rate = r.name
    )
order by r.name
