-- Records that a step works again, if it has not failed between $failed_before and $now.
delete from trax.failed_step f
where f.step = $step
    and f.failed_at not between $failed_before and $now - interval '1 us'
