-- What is wrong, the worst first, as trax.diagnose tells it.
select d.cause, d.severity, d.detail, d.fix
from trax.diagnose() d
