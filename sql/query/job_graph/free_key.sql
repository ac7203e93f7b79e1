-- Frees the unique key of a graph whose jobs have all ended.
update trax.graph g
set unique_key = null
where g.graph_id = $graph_id
    and g.unique_key = $key
