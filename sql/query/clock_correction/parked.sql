-- Sets parked_since to $now where it is later than $latest.
update trax.manifest_state s
set parked_since = $now
where s.ctid = any (array(
    select t.ctid
    from trax.manifest_state t
    where t.parked_on in ('group_disabled', 'dead_letter', 'queued', 'executing', 'outcome')
        and t.parked_since > $latest
    for update skip locked
))
