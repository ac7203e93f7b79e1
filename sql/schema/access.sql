-- access: the tasks and groups to which roles are limited. All other rights are grants on the
-- extension's objects.
--
-- A row has a meaning only for a role that may execute trax.limited_access(); grant_access writes
-- both.

create table trax.access_scope (
    role text not null,
    level text not null,
    tasks text[],
    groups text[],
    constraint access_scope_pkey primary key (role),
    constraint access_scope_level_known check (level in ('producer', 'worker')),
    constraint access_scope_limits check (num_nonnulls(tasks, groups) > 0),
    constraint access_scope_names check (tasks <> '{}' and groups <> '{}')
);
select pg_catalog.pg_extension_config_dump('trax.access_scope', '');

comment on table trax.access_scope is
    'The tasks and groups that trax.grant_access limits roles to; a role that is not here is not limited.';
comment on column trax.access_scope.role is 'Name of the role.';
comment on column trax.access_scope.level is 'Its level: producer or worker.';
comment on column trax.access_scope.tasks is 'The tasks whose jobs it may queue, cancel or claim; null: every task.';
comment on column trax.access_scope.groups is 'The groups in which it may; null: every group.';
