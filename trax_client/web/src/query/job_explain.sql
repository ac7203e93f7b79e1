-- The reasons why a job waits. $1 job id.
select e.reason, e.detail, e.since, e.action
from trax.explain_job(job_id => $1) e
