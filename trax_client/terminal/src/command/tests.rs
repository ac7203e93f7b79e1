//! Hints as they are shown to the users of the command.

use super::*;

#[test]
fn a_name_of_others_stays_as_it_was_quoted() {
    for fix in [
        r"commit prepared 'select trax.enable_manifest('''') ; drop table t; --'; or: x",
        r"trax worker --exec COMMAND --task 'a'\''select trax.resume()'",
        r#"alter function "it's"."select trax.resume()"() owner to postgres"#,
        r"drop 'select trax.resume()",
        r"\",
    ] {
        assert_eq!(as_commands(fix), fix);
    }
    let behind = "commit prepared 'it''s'; or: select trax.resume()";
    assert_eq!(
        as_commands(behind),
        "commit prepared 'it''s'; or: trax resume"
    );
}

#[test]
fn a_call_that_is_a_command_is_shown_as_one() {
    for (sql, command) in [
        (
            "To let it go on, type: select trax.resume()",
            "To let it go on, type: trax resume",
        ),
        (
            "select trax.grant_access('app', 'reader')",
            "trax grant app reader",
        ),
        (
            r#"As an administrator: select trax.grant_access(E'"A\\ ""b"', 'worker')"#,
            r#"As an administrator: trax grant 'A\ "b' worker"#,
        ),
        (
            "If it should, as an admin of trax type: select trax.grant_access('app', 'worker', \
             tasks => array['a', 'it''s'], groups => array['g'])",
            r"If it should, as an admin of trax type: trax grant app worker --task a --task 'it'\''s' --group g",
        ),
        (
            "See jobs with: select * from trax.job; cancel one with: select trax.cancel(job_id)",
            "See jobs with: trax jobs list; cancel one with: trax jobs cancel ID",
        ),
        (
            "End the session: select * from trax.diagnose() says how.",
            "End the session: trax doctor says how.",
        ),
        (
            "select trax.configure_group('it''s', enabled => true)",
            r"trax group resume 'it'\''s'",
        ),
        (
            "See: select job_id, worker, task, started_at from trax.lease where group_name = 'g'; or: \
             select trax.configure_group('g', max_active_jobs => 8)",
            "See: trax jobs list --state in_progress --group g; or: trax group set g --max-active-jobs 8",
        ),
        (
            "select trax.configure_rate('r', 100, '1 min'); select trax.configure_rate('r', ..., burst => 3)",
            "trax rate set r --allowed 100 --per '1 min'; trax rate set r ... --burst 3",
        ),
        (
            "Nothing: wait; or: select trax.close_rate('r', 'k', until => now())",
            "Nothing: wait; or: trax rate open r --key k",
        ),
        (
            "To run it now: select trax.run_now(7). See: select * from trax.explain_job(...)",
            "To run it now: trax jobs retry --scheduled 7. See: trax jobs why ...",
        ),
        (
            "List its steps: select step, kind from trax.read_steps(7); select trax.fork(7, from_step => 's')",
            "List its steps: trax jobs show 7; trax jobs fork 7 --from s",
        ),
        (
            "select trax.configure_group('g', max_waiting => 20); select trax.requeue_dead_letter(id, fresh => true)",
            "trax group set g --max-waiting 20; trax dead requeue ID --fresh",
        ),
        (
            "select trax.requeue_dead_letter(7); or, without another run: select trax.acknowledge_dead_letter(7)",
            "trax dead requeue 7; or, without another run: trax dead ack 7",
        ),
        (
            "Open another: select trax.open_batch('...')",
            "Open another: trax enqueue ... --open-batch",
        ),
        (
            "If they should be: call trax_router.move_group('it''s', 3, null, gather => true)",
            r"If they should be: trax group move 'it'\''s' --to 3 --gather",
        ),
        (
            "See: select id, task, last_error from trax.dead_letter where status = 'awaiting_intervention'; \
             then trax.requeue_dead_letter(id) or trax.acknowledge_dead_letter(id)",
            "See: trax dead list; then trax dead requeue ID or trax dead ack ID",
        ),
    ] {
        assert_eq!(as_commands(sql), command);
    }
    let typed = Typed {
        options: [
            "every",
            "group",
            "run-at",
            "priority",
            "depends-on",
            "prune",
            "source",
            "per",
        ]
        .map(|name| format!("--{name}"))
        .to_vec(),
        alone: vec!["names".to_owned()],
    };
    for (sql, option, member) in [
        (
            "Specify an interval, for example: every => interval '30 s'",
            "Specify an interval, for example: --every '30 s'",
            "Specify an interval, for example: every = \"30 s\"",
        ),
        (
            "group_name => 'it''s'; run_at => now() + interval '5 min', priority => 0",
            r"--group 'it'\''s'; --run-at tomorrow, --priority 0",
            "group_name = \"it's\"; run_at = \"tomorrow\", priority = 0",
        ),
        (
            "Name its parents: depends_on => array['a', 'b c']; or leave out run_at => ...",
            "Name its parents: --depends-on a --depends-on 'b c'; or leave out --run-at ...",
            "Name its parents: depends_on = [\"a\", \"b c\"]; or leave out run_at = ...",
        ),
        (
            "apply that with prune => true, or apply this one with source => 'x'",
            "apply that with --prune, or apply this one with --source x",
            "apply that with prune = true, or apply this one with source = \"x\"",
        ),
        (
            "name => 'report.build', or name => ...; period => interval '30 s'",
            "report.build, or NAME; --per '30 s'",
            "name = \"report.build\", or name = ...; period = \"30 s\"",
        ),
        (
            "Nothing, or: select trax.trigger('m')",
            "Nothing, or: trax manifest trigger m",
            "Nothing, or: trax manifest trigger m",
        ),
    ] {
        assert_eq!(typed.rewritten(sql), option);
        assert_eq!(as_commands(sql), member);
    }
    let worker = Typed {
        options: ["--name", "--version", "--lease"]
            .map(str::to_owned)
            .to_vec(),
        alone: Vec::new(),
    };
    for (sql, option) in [
        (
            "Specify a name: worker => 'web 1'",
            "Specify a name: --name 'web 1'",
        ),
        (
            "Name them: versions => array['2', '3']",
            "Name them: --version 2 --version 3",
        ),
    ] {
        assert_eq!(worker.rewritten(sql), option);
    }
    for sql in [
        "select trax.adopt()",
        "select trax.adopt(keep => true)",
        "change their parents with trax.schedule(..., depends_on => ...).",
        "quoted: 'prune => true'",
        "select trax.start_scheduler(); or call trax.tick()",
        "begin; select trax.make_run_partitions(d.day, 0) from d; commit",
        "select pg_terminate_backend(7)",
        "select trax.resume(",
    ] {
        assert_eq!(as_commands(sql), sql);
    }
}
