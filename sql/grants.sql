-- Last: nothing is for PUBLIC. Roles get what they need from trax.grant_access().

revoke all on schema trax from public;
revoke all on all tables in schema trax from public;
revoke all on all sequences in schema trax from public;
revoke all on all functions in schema trax from public;
revoke all on all procedures in schema trax from public;

-- Tells the launcher, once this transaction has committed, that this database has the extension.
select trax.installed();
