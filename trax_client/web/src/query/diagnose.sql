-- Problems from trax.diagnose, most severe first.
select d.cause, d.severity, d.detail, d.fix
from trax.diagnose() d
