-- Returns whether any role is limited.
select exists (
    select
    from pg_proc p
    cross join aclexplode(p.proacl) a
    where p.pronamespace = 'trax'::regnamespace
        and p.proname = 'limited_access'
        and a.grantee <> p.proowner
)
