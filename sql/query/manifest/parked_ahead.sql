-- What is parked since a time after $1 is parked since $2.
update trax.manifest_state s
set parked_since = $2
where s.ctid = any (array(
    select t.ctid
    from trax.manifest_state t
    where t.parked_on in ('group_disabled', 'dead_letter', 'queued', 'executing', 'outcome')
        and t.parked_since > $1
    for update skip locked
))
