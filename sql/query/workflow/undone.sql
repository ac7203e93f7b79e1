-- Returns the first of some steps that an undo job undoes.
select e.step ->> 'step'
from jsonb_array_elements($steps) with ordinality e (step, place)
where e.step ? 'undo'
    and e.place < coalesce($before, e.place + 1)
order by e.place
limit 1
