//! The install order of the SQL files.

use pgrx::extension_sql_file;

extension_sql_file!(
    "../../sql/schema/instance.sql",
    name = "schema_instance",
    bootstrap
);
extension_sql_file!(
    "../../sql/schema/group.sql",
    name = "schema_group",
    requires = ["schema_instance"]
);
extension_sql_file!(
    "../../sql/schema/manifest.sql",
    name = "schema_manifest",
    requires = ["schema_group"]
);
extension_sql_file!(
    "../../sql/schema/work_queue.sql",
    name = "schema_work_queue",
    requires = ["schema_manifest"]
);
extension_sql_file!(
    "../../sql/schema/lease.sql",
    name = "schema_lease",
    requires = ["schema_work_queue"]
);
extension_sql_file!(
    "../../sql/schema/run.sql",
    name = "schema_run",
    requires = ["schema_lease"]
);
extension_sql_file!(
    "../../sql/schema/progress.sql",
    name = "schema_progress",
    requires = ["schema_run"]
);
extension_sql_file!(
    "../../sql/schema/dead_letter.sql",
    name = "schema_dead_letter",
    requires = ["schema_progress"]
);
extension_sql_file!(
    "../../sql/schema/token.sql",
    name = "schema_token",
    requires = ["schema_dead_letter"]
);
extension_sql_file!(
    "../../sql/schema/worker.sql",
    name = "schema_worker",
    requires = ["schema_token"]
);
extension_sql_file!(
    "../../sql/schema/cleanup.sql",
    name = "schema_cleanup",
    requires = ["schema_worker"]
);
extension_sql_file!(
    "../../sql/schema/audit.sql",
    name = "schema_audit",
    requires = ["schema_cleanup"]
);
extension_sql_file!(
    "../../sql/schema/access.sql",
    name = "schema_access",
    requires = ["schema_audit"]
);

extension_sql_file!(
    "../../sql/api/rights.sql",
    name = "api_rights",
    requires = ["schema_access"]
);
extension_sql_file!(
    "../../sql/api/work_queue.sql",
    name = "api_work_queue",
    requires = ["api_rights"]
);
extension_sql_file!(
    "../../sql/api/new_job.sql",
    name = "api_new_job",
    requires = ["api_work_queue"]
);
extension_sql_file!(
    "../../sql/api/claim.sql",
    name = "api_claim",
    requires = ["api_new_job"]
);
extension_sql_file!(
    "../../sql/api/lease.sql",
    name = "api_lease",
    requires = ["api_claim"]
);
extension_sql_file!(
    "../../sql/api/outcome.sql",
    name = "api_outcome",
    requires = ["api_lease"]
);
extension_sql_file!(
    "../../sql/api/manifest.sql",
    name = "api_manifest",
    requires = ["api_outcome"]
);
extension_sql_file!(
    "../../sql/api/dead_letter.sql",
    name = "api_dead_letter",
    requires = ["api_manifest"]
);
extension_sql_file!(
    "../../sql/api/cycle.sql",
    name = "api_cycle",
    requires = ["api_dead_letter"]
);
extension_sql_file!(
    "../../sql/api/token.sql",
    name = "api_token",
    requires = ["api_cycle"]
);
extension_sql_file!(
    "../../sql/api/scheduler.sql",
    name = "api_scheduler",
    requires = ["api_token"]
);
extension_sql_file!(
    "../../sql/api/run.sql",
    name = "api_run",
    requires = ["api_scheduler"]
);
extension_sql_file!(
    "../../sql/api/await_job.sql",
    name = "api_await_job",
    requires = ["api_run"]
);
extension_sql_file!(
    "../../sql/api/status.sql",
    name = "api_status",
    requires = ["api_await_job"]
);
extension_sql_file!(
    "../../sql/api/check.sql",
    name = "api_check",
    requires = ["api_status"]
);
extension_sql_file!(
    "../../sql/api/metrics.sql",
    name = "api_metrics",
    requires = ["api_check"]
);
extension_sql_file!(
    "../../sql/api/explain.sql",
    name = "api_explain",
    requires = ["api_metrics"]
);
extension_sql_file!(
    "../../sql/api/access.sql",
    name = "api_access",
    requires = ["api_explain"]
);
extension_sql_file!(
    "../../sql/api/diagnose.sql",
    name = "api_diagnose",
    requires = ["api_access"]
);

extension_sql_file!("../../sql/grants.sql", name = "grants", finalize);
