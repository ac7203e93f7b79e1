-- Last: nothing is for PUBLIC. Roles get what they need from trax.grant_access().

revoke all on schema trax from public;
revoke all on schema trax_router from public;
revoke all on all tables in schema trax from public;
revoke all on all tables in schema trax_router from public;
revoke all on all routines in schema trax from public;
revoke all on all routines in schema trax_router from public;
