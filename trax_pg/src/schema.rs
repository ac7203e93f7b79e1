//! The install order of the SQL files.

pgrx::extension_sql_file!("../../sql/api/scheduler.sql", name = "api_scheduler");
