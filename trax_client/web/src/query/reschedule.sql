-- Changes only the schedule of a manifest. $1 name, $2 cron, $3 every, $4 zone.
select trax.schedule(
    name => m.name,
    task => case when m.run_as is null then m.task end,
    sql => case when m.run_as is not null then m.input ->> 'command' end,
    run_as => m.run_as,
    cron => $2,
    every => $3::interval,
    timezone => $4
)::text
from trax.manifest m
where m.name = $1
