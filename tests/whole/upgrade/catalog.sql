-- Every object of the schema trax, one line each, with all properties that may differ.
with ours as (
    select c.*, pg_get_userbyid(c.relowner) as owner
    from pg_class c
    where c.relnamespace = 'trax'::regnamespace
), line (line) as (
    select concat_ws(' | ', 'relation', c.oid::regclass, c.relkind, c.owner, c.relpersistence, c.relreplident, c.relispartition,
        c.relrowsecurity, c.relforcerowsecurity, a.amname, c.reloptions, (select t.reloptions from pg_class t where t.oid = c.reltoastrelid),
        c.reltoastrelid <> 0, s.spcname, pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid), obj_description(c.oid, 'pg_class'))
    from ours c
    left join pg_am a on a.oid = c.relam
    left join pg_tablespace s on s.oid = c.reltablespace
    union all
    select concat_ws(' | ', 'column', c.oid::regclass, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), l.collname, a.attnotnull,
        a.attidentity, a.attgenerated, a.attstorage, a.attcompression, nullif(a.attstattarget, -1), a.attislocal, a.attinhcount,
        a.attfdwoptions, pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum))
    from ours c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    left join pg_collation l on l.oid = a.attcollation
    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
    union all
    select concat_ws(' | ', 'view', c.oid::regclass, pg_get_viewdef(c.oid)) from ours c where c.relkind in ('v', 'm')
    union all
    select concat_ws(' | ', 'sequence', c.oid::regclass, s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle,
        (select concat(d.deptype, d.refobjid::regclass, d.refobjsubid) from pg_depend d where d.objid = c.oid and d.refclassid = 'pg_class'::regclass))
    from ours c
    join pg_sequence s on s.seqrelid = c.oid
    union all
    select concat_ws(' | ', 'index', pg_get_indexdef(i.indexrelid), i.indisprimary, i.indisvalid, i.indisready, i.indisreplident, i.indisclustered)
    from ours c
    join pg_index i on i.indrelid = c.oid
    union all
    select concat_ws(' | ', 'constraint', k.conrelid::regclass, k.conname, pg_get_constraintdef(k.oid), k.convalidated, k.condeferrable, k.condeferred,
        k.conislocal, k.coninhcount, k.connoinherit, obj_description(k.oid, 'pg_constraint'))
    from pg_constraint k
    where k.connamespace = 'trax'::regnamespace
    union all
    select concat_ws(' | ', 'trigger', pg_get_triggerdef(t.oid), t.tgenabled, obj_description(t.oid, 'pg_trigger'))
    from ours c
    join pg_trigger t on t.tgrelid = c.oid
    where not t.tgisinternal
    union all
    select concat_ws(' | ', 'rule', pg_get_ruledef(r.oid)) from ours c join pg_rewrite r on r.ev_class = c.oid
    union all
    select concat_ws(' | ', 'policy', p.polname) from ours c join pg_policy p on p.polrelid = c.oid
    union all
    select concat_ws(' | ', 'statistics', pg_get_statisticsobjdef(x.oid)) from pg_statistic_ext x where x.stxnamespace = 'trax'::regnamespace
    union all
    select concat_ws(' | ', 'routine', p.oid::regprocedure, p.prokind, pg_get_userbyid(p.proowner), l.lanname, pg_get_function_arguments(p.oid),
        pg_get_function_result(p.oid), p.prosecdef, p.proleakproof, p.proisstrict, p.proretset, p.provolatile, p.proparallel, p.procost,
        p.prorows, p.prosupport, p.proconfig, p.probin, p.prosrc, obj_description(p.oid, 'pg_proc'))
    from pg_proc p
    join pg_language l on l.oid = p.prolang
    where p.pronamespace = 'trax'::regnamespace
    union all
    select concat_ws(' | ', 'type', t.oid::regtype, t.typtype, pg_get_userbyid(t.typowner), t.typacl, obj_description(t.oid, 'pg_type'))
    from pg_type t
    where t.typnamespace = 'trax'::regnamespace
    union all
    select concat_ws(' | ', 'wrapper', w.fdwname, pg_get_userbyid(w.fdwowner), w.fdwhandler::regproc, w.fdwvalidator::regproc, w.fdwacl, w.fdwoptions, obj_description(w.oid, 'pg_foreign_data_wrapper'))
    from pg_foreign_data_wrapper w
    union all
    select concat_ws(' | ', 'server', s.srvname, pg_get_userbyid(s.srvowner), s.srvtype, s.srvversion, s.srvacl, s.srvoptions, obj_description(s.oid, 'pg_foreign_server'))
    from pg_foreign_server s
    union all
    select concat_ws(' | ', 'user mapping', u.umuser, u.srvname, u.umoptions) from pg_user_mappings u
    union all
    select concat_ws(' | ', 'event trigger', e.evtname, e.evtevent, e.evtfoid::regproc, e.evtenabled, e.evttags) from pg_event_trigger e
    union all
    select concat_ws(' | ', 'right', r.kind, r.object, r.detail, a.grantee::regrole, a.privilege_type, a.is_grantable)
    from (
        select 'relation' as kind, c.oid::regclass::text as object, '' as detail, c.relacl as acl, c.relowner as owner from ours c
        union all
        select 'column', c.oid::regclass::text, a.attname, a.attacl, c.relowner from ours c join pg_attribute a on a.attrelid = c.oid
        union all
        select 'routine', p.oid::regprocedure::text, '', coalesce(p.proacl, acldefault('f', p.proowner)), p.proowner from pg_proc p where p.pronamespace = 'trax'::regnamespace
        union all
        select 'schema', n.nspname, '', n.nspacl, n.nspowner from pg_namespace n where n.nspname = 'trax'
    ) r
    cross join aclexplode(r.acl) a
    where a.grantee <> r.owner
    union all
    -- The source of the rights in a dump.
    select concat_ws(' | ', 'first right', pg_describe_object(i.classoid, i.objoid, i.objsubid), i.privtype, a.grantee::regrole, a.privilege_type, a.is_grantable)
    from pg_init_privs i
    cross join aclexplode(i.initprivs) a
    where a.grantee = 0 or a.grantee >= 16384
    union all
    select concat_ws(' | ', 'member', pg_describe_object(d.classid, d.objid, d.objsubid))
    from pg_depend d
    join pg_extension e on d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid
    where d.deptype = 'e' and e.extname = 'trax'
    union all
    select concat_ws(' | ', 'extension', e.extname, e.extversion, pg_get_userbyid(e.extowner), e.extnamespace::regnamespace, e.extrelocatable, obj_description(e.oid, 'pg_extension'))
    from pg_extension e
    where e.extname = 'trax'
    union all
    select concat_ws(' | ', 'dump', c.config::regclass, c.condition)
    from pg_extension e
    cross join unnest(e.extconfig, e.extcondition) c (config, condition)
    where e.extname = 'trax'
)
select string_agg(l.line, U&'\001e') from line l where l.line not like '%| pg_toast%'
