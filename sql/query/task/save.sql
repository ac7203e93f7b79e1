-- Creates or changes the defaults of a task; a null keeps the stored value, or with $replaces, as
-- trax.apply() does, removes it. $source takes the task over.
insert into trax.task as t (
    name, max_retries, retry_delay, backoff, retry_delay_max, timeout, on_final_failure, created_at, updated_at, applied,
    source
)
values (
    $name, $max_retries, $retry_delay, $backoff, $retry_delay_max, $timeout, coalesce($on_final_failure, 'dead_letter'),
    $now, $now, $replaces, $source
)
on conflict (name) do update set
    max_retries = case when $replaces then $max_retries else coalesce($max_retries, t.max_retries) end,
    retry_delay = case when $replaces then $retry_delay else coalesce($retry_delay, t.retry_delay) end,
    backoff = case when $replaces then $backoff else coalesce($backoff, t.backoff) end,
    retry_delay_max = case when $replaces then $retry_delay_max else coalesce($retry_delay_max, t.retry_delay_max) end,
    timeout = case when $replaces then $timeout else coalesce($timeout, t.timeout) end,
    on_final_failure = case
        when $replaces then coalesce($on_final_failure, 'dead_letter')
        else coalesce($on_final_failure, t.on_final_failure)
    end,
    applied = t.applied or $source is not null,
    source = coalesce($source, t.source),
    updated_at = $now
