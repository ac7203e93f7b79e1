-- The reasons why a manifest does or does not run now. $1 name.
select e.reason, e.detail, e.since, e.action
from trax.explain_manifest(name => $1) e
