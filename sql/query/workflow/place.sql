-- Returns the place of a step among steps; null when it is not one of them.
select min(e.place)
from jsonb_array_elements($steps) with ordinality e (step, place)
where e.step ->> 'step' = $step
