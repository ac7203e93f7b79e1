-- Last: revokes everything from PUBLIC, and from the roles that default privileges name.
-- trax.grant_access() grants roles their rights.

revoke all on schema trax from public;
revoke all on all tables in schema trax from public;
revoke all on all sequences in schema trax from public;
revoke all on all functions in schema trax from public;
revoke all on all procedures in schema trax from public;
select trax.withdraw_rights();
select trax.enable_triggers();

-- Notifies the launcher, once this transaction has committed, that this database has the extension.
select trax.installed();
