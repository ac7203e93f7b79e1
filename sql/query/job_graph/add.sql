-- Adds a graph, unless another has its unique key.
insert into trax.graph (graph_id, queued_at, is_batch, unique_key)
values ($graph_id, $now, $is_batch, $key)
on conflict (unique_key) where unique_key is not null do nothing
