-- Whether this database is the router of a cluster.
select pg_catalog.to_regprocedure('trax_router.shards()') is not null as is_router
