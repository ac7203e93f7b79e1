-- Makes manifests that may overlap due again once their waiting entries are claimed. Returns them,
-- and those whose state is locked: a claim waits for no outcome.
with unparked as (
    update trax.manifest_state s
    set
        next_run_at = case when s.parked_on = 'queued' then s.parked_due_at else s.next_run_at end,
        next_scheduled_for = case when s.parked_on = 'queued' then s.parked_due_at else s.next_scheduled_for end,
        parked_on = nullif(s.parked_on, 'queued'),
        parked_since = case when s.parked_on <> 'queued' then s.parked_since end
    where s.ctid = any (array(
        select t.ctid
        from trax.manifest m
        join trax.manifest_state t on t.manifest_id = m.manifest_id
        where m.manifest_id = any ($manifest_ids)
            and m.overlap = 'allow'
        order by t.manifest_id
        for update of t skip locked
    ))
    returning s.manifest_id
)
select m.manifest_id, m.manifest_id in (select u.manifest_id from unparked u) as is_unparked
from trax.manifest m
join trax.manifest_state t on t.manifest_id = m.manifest_id
where m.manifest_id = any ($manifest_ids)
    and m.overlap = 'allow'
