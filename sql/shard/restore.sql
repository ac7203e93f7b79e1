-- restore: a shard that was restored from a backup. Called by trax_router.adopt_shard().

create function trax.adopt_shard(
    groups_away text[]
)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    name text;
begin
    for name in select distinct n from unnest(groups_away) n loop
        perform trax.configure_group(name, enabled => false);
    end loop;
    perform trax.adopt(keep => true);
end;
$$;
comment on function trax.adopt_shard(text[]) is
    'Internal. Adopts a copy of a shard, with these groups, which are on other shards, disabled. Called by trax_router.adopt_shard().';
