-- Returns jobs that could not be read.
select u.job_id
from trax.unreadable_job u
order by u.job_id
limit $at_most
