# The tasks of README.md, in place of the example's own.
TASKS=$(printf ',conformance.%s' echo wait fail fail_permanently retry_in snooze large typed)
TASKS=${TASKS:1}
run_task() {
    TRAX_JOB_ID=$id TRAX_ATTEMPT=$attempt TRAX_TASK=$task
    source tests/conformance/handler.sh
}
