-- Acts of operators, newest first. $1 before this time, $2 limit.
select a.id, a.at, a.role, a.program, a.action, a.kind, a.name, a.note
from trax.audit a
where a.at < coalesce($1::text::timestamptz, 'infinity')
order by a.at desc, a.id desc
limit $2
