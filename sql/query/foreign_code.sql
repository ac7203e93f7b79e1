-- What others than a superuser or a table's owner would do with the owner's rights, and which functions it rests on.
select c.relation, c.object, c.function, c.owner::text, c.is_trusted, c.function_oid
from trax.code_of_others() c
order by c.is_trusted, c.relation, c.object, c.function
