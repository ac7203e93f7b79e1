-- Last: nothing is for PUBLIC, nor for whom default privileges name. Roles get what they need from
-- trax.grant_access().

revoke all on schema trax from public;
revoke all on all tables in schema trax from public;
revoke all on all sequences in schema trax from public;
revoke all on all functions in schema trax from public;
revoke all on all procedures in schema trax from public;
select trax.withdraw_rights();
select trax.enable_triggers();

-- Tells the launcher, once this transaction has committed, that this database has the extension.
select trax.installed();
