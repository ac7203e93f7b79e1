-- Returns whether this session loads a dump.
select trax.is_loading_dump()
