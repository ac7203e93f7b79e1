-- The cycle and the scheduler.

create function trax.tick()
returns table (
    step text,
    affected bigint
)
language c volatile parallel unsafe security definer
rows 10
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_tick';
comment on function trax.tick() is
    'Runs a cycle of the scheduler. Returns the number of changed rows for each step; no rows while another cycle runs.';

create function trax.pause(
    reason text default null
)
returns void
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_pause';
comment on function trax.pause(text) is
    'Pauses the scheduler of this database until trax.resume(), across restarts too; trax.tick() and claims of workers still work. No SQL job begins.';

create function trax.resume()
returns void
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_resume';
comment on function trax.resume() is 'Resumes a paused scheduler.';

create function trax.believe_clock()
returns boolean
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_believe_clock';
comment on function trax.believe_clock() is
    'Accepts the clock of this server at once after it has jumped. Returns false when the clock had not jumped.';

create function trax.clock_jump()
returns table (
    believed_at timestamptz,
    jumped_at timestamptz,
    held_until timestamptz
)
language c volatile parallel restricted
rows 1
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_clock_jump';
comment on function trax.clock_jump() is
    'Internal. Returns the time that is believed while the clock of this server has jumped, what it showed when that was first seen, and when it is believed if it holds; no row otherwise.';

create function trax.is_copy()
returns boolean
language c volatile parallel restricted security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_is_copy';
comment on function trax.is_copy() is
    'Internal. Returns whether the jobs in this database are a copy that nothing has adopted here.';

create function trax.adopt_here()
returns void
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_adopt';
comment on function trax.adopt_here() is
    'Internal. Makes the jobs in a copy belong to this server and this database.';

create function trax.adopt(
    keep boolean default false
)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    number constant int := (select trax.shard_of(s.last_value) from trax.work_queue_job_id_seq s);
begin
    -- The tables of a copy do not show which groups have moved to other shards since it was made.
    if keep is not true
        and exists (select from pg_extension e where e.extname = 'trax_shard')
        and trax.is_copy()
    then
        raise exception 'this database is a copy of shard %', number
            using errcode = '55000',
                detail = 'Groups may have moved to other shards since the copy was made, and their jobs would run twice.',
                hint = format(
                    'If a router has this shard, type there: select * from trax_router.adopt_shard(%s); if all jobs should run here: select trax.adopt(keep => true)',
                    number
                );
    end if;
    perform trax.adopt_here();
end;
$$;
comment on function trax.adopt(boolean) is
    'Makes the jobs in a copy (a restored dump, a clone) run here, also if the original was paused; stores trax.home. A copy of a shard of a router is refused unless keep is true, as groups may have moved to other shards.';

create function trax.adoption_changed()
returns trigger
language c
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_adoption_changed';
comment on function trax.adoption_changed() is
    'Internal. Makes every session check again whether these tables are a copy.';
create trigger instance_changed
after insert or update or delete or truncate on trax.instance
for each statement execute function trax.adoption_changed();
create trigger adoption_changed
after insert or update or delete or truncate on trax.adoption
for each statement execute function trax.adoption_changed();
create function trax.own_triggers()
returns table (
    relation regclass,
    name name,
    enabled "char"
)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select t.tgrelid::regclass, t.tgname, t.tgenabled
    from pg_class c
    join pg_trigger t on t.tgrelid = c.oid
    join pg_proc p on p.oid = t.tgfoid
    where c.relnamespace = 'trax'::regnamespace
        and c.relkind = 'r'
        and c.relhastriggers
        and p.pronamespace = 'trax'::regnamespace
$$;
comment on function trax.own_triggers() is
    'Internal. Returns the triggers of trax, and how they are enabled: always, unless one has been disabled since these jobs were adopted.';

create function trax.enable_triggers()
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    disabled record;
begin
    for disabled in
        select t.relation, t.name
        from trax.own_triggers() t
        where t.enabled <> 'A'
        order by t.relation::oid, t.name
    loop
        perform trax.refuse_foreign_code();
        execute format('alter table %s enable always trigger %I', disabled.relation, disabled.name);
    end loop;
end;
$$;
comment on function trax.enable_triggers() is
    'Internal. Enables our triggers always, also in a session that replicates.';

-- A restore into an adopted database makes it a copy before its rows are visible.
create trigger instance_restored
before insert on trax.instance
for each statement execute function trax.changed_manually();
create trigger manifest_state_restored
before insert on trax.manifest_state
for each statement execute function trax.changed_manually();
