-- Grants a role the rights of a level.
select trax.grant_access($role::regrole, $level) is null as done
