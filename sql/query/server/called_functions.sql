-- The functions that these objects call, those of operators too; the server notes no dependency on
-- its own, and of ours none counts.
select distinct f.oid
from unnest($classes, $objects) o (class, oid)
join pg_depend d on d.classid = o.class and d.objid = o.oid
cross join lateral (
    select case d.refclassid
        when 'pg_proc'::regclass then d.refobjid
        else (select x.oprcode::oid from pg_operator x where x.oid = d.refobjid)
    end
) f (oid)
where d.refclassid in ('pg_proc'::regclass, 'pg_operator'::regclass)
    and (select p.pronamespace from pg_proc p where p.oid = f.oid) <> 'trax'::regnamespace
