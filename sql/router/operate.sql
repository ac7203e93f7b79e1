-- Access to the router, and the shard number in an id.

create function trax.shard_of(
    job_id bigint
)
returns int
language sql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select (job_id >> 43)::int
$$;
comment on function trax.shard_of(bigint) is
    'Returns the number of the shard that gave this id to a job or a dead letter; 0 is that of a database whose number was never set.';

create function trax_router.grant_use(
    role regrole,
    is_admin boolean
)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform trax_router.withdraw_use(role);
    execute format('grant usage on schema trax, trax_router to %s', role);
    execute format('grant execute on all routines in schema trax to %s', role);
    execute format('grant insert on trax.new_job to %s', role);
    -- Each shard, which the role calls as itself, decides its rights; here only functions that
    -- change the router are withheld.
    execute (
        select string_agg(format('grant execute on function %s to %s', p.oid::regprocedure, role), '; ')
        from pg_proc p
        where p.pronamespace = 'trax_router'::regnamespace
            and (
                p.proname <> all (trax_router.functions_of_owner())
                or is_admin and p.proname in ('grant_use', 'withdraw_use', 'hold_manifests', 'forget')
            )
    );
end;
$$;
comment on function trax_router.grant_use(regrole, boolean) is
    'Internal. Lets a role call the shards through the router, as itself.';

create function trax_router.withdraw_use(
    role regrole
)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    execute format('revoke all on all routines in schema trax, trax_router from %s', role);
    execute format('revoke all on all tables in schema trax from %s', role);
    execute format('revoke all on schema trax, trax_router from %s', role);
end;
$$;
comment on function trax_router.withdraw_use(regrole) is
    'Internal. Takes away what trax_router.grant_use() gave.';

create function trax_router.refuse_unknown_role(
    role regrole
)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    -- Sent to a shard, its number would be the oid of another role there.
    if role is not null and role not in (select r.oid from pg_roles r) then
        raise exception 'role "%" does not exist', role
            using errcode = '42704',
                detail = 'No row of pg_roles has this name or oid.',
                hint = 'Name a role: trax.grant_access(role => ''app'', level => ''worker'')';
    end if;
end;
$$;
comment on function trax_router.refuse_unknown_role(regrole) is
    'Internal. Refuses the number of a role that does not exist.';

create function trax.grant_access(
    role regrole,
    level text,
    tasks text[] default null,
    groups text[] default null
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    shard int;
    done int[] := '{}';
    failure trax_router.failure;
begin
    perform trax_router.refuse_unknown_role(role);
    if level = 'none' then
        perform trax.revoke_access(role);
        return;
    end if;
    for shard in select * from trax_router.numbers() loop
        begin
            perform trax_router.grant_access(shard, role::text, level, tasks, groups);
            done := done || shard;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                perform trax_router.raise(failure, trax_router.done_on(done));
        end;
    end loop;
    perform trax_router.grant_use(role, level = 'admin');
end;
$$;
comment on function trax.grant_access(regrole, text, text[], text[]) is
    'Sets what a role may do on every shard, where a role of the same name must exist, and lets it use the router.';

create function trax.revoke_access(
    role regrole
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    shard int;
    done int[] := '{}';
    failure trax_router.failure;
    first_failure trax_router.failure;
begin
    perform trax_router.refuse_unknown_role(role);
    for shard in select * from trax_router.numbers() loop
        begin
            perform trax_router.revoke_access(shard, role::text);
            done := done || shard;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                -- A shard without the role has no rights to revoke.
                if failure.state <> '42704' then
                    first_failure := case when first_failure.state is null then failure else first_failure end;
                end if;
                exit when trax_router.is_cancelled(failure);
        end;
    end loop;
    if first_failure.state is not null then
        perform trax_router.raise(first_failure, trax_router.done_on(done));
    end if;
    perform trax_router.withdraw_use(role);
end;
$$;
comment on function trax.revoke_access(regrole) is
    'Revokes on every shard, and here, all that trax.grant_access granted to a role, which can then be dropped.';
