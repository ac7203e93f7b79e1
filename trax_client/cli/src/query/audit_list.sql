-- Acts of operators, newest first. $1 roles, $2 actions, $3 kinds, $4 names, $5 since, $6 limit.
select a.id, a.at, a.role, a.program, a.action, a.kind, a.name, a.note
from trax.audit a
where ($1::text[] is null or a.role = any ($1))
    and ($2::text[] is null or a.action = any ($2))
    and ($3::text[] is null or a.kind = any ($3))
    and ($4::text[] is null or a.name = any ($4))
    and a.at >= coalesce($5, '-infinity')
order by a.at desc, a.id desc
limit $6
