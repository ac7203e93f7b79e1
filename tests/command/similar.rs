//! Suggestions for unknown names that are similar to an existing one.

use super::{bare, refused, trax};
use harness::process::run;
use harness::scheduler::new_name;
use harness::session::session;

#[tokio::test]
async fn a_name_that_nothing_has_is_answered_with_the_one_that_was_meant() {
    let (db, s) = session().await;
    s.get("select trax.schedule('nightly-report', 'report.build', group_name => 'reports'), trax.configure_group('reports'),
                  trax.enqueue('mail.send')")
        .await;
    for arguments in [
        &["manifest", "show", "nightly-reprot"][..],
        &["manifest", "enable", "nightly_report"],
        &["manifest", "trigger", "Nightly-Report"],
        &["manifest", "preview", "nightly-repor"],
        &["manifest", "why", "nightlyreport"],
        &["manifest", "export", "nightly-rport"],
        &["manifest", "delete", "nightly-repot", "--yes"],
        &["jobs", "cancel", "--manifest", "nightly-repott", "--yes"],
    ] {
        let errors = refused(&db, 1, arguments);
        assert!(
            errors.contains("does not exist")
                && errors.contains("did you mean \"nightly-report\"?"),
            "{arguments:?}: {errors}"
        );
    }
    for arguments in [
        &["group", "pause", "report"][..],
        &["jobs", "cancel", "--group", "report", "--yes"],
    ] {
        let errors = refused(&db, 1, arguments);
        assert!(errors.contains("did you mean \"reports\"?"), "{errors}");
    }
    s.get("select trax.schedule('m', 't')").await;
    for name in ["weekly", "n"] {
        let errors = refused(&db, 1, &["manifest", "show", name]);
        assert!(!errors.contains("did you mean"), "{errors}");
    }
    for (arguments, meant) in [
        (&["jobs", "list", "--task", "mail.sent"][..], "mail.send"),
        (&["jobs", "list", "--group", "raports"], "reports"),
        (
            &["jobs", "list", "--manifest", "nightly-reports"],
            "nightly-report",
        ),
        (&["dead", "list", "--task", "report.biuld"], "report.build"),
        (&["manifest", "list", "--group", "Reports"], "reports"),
        (
            &["jobs", "cancel", "--task", "mail-send", "--yes"],
            "mail.send",
        ),
    ] {
        let (code, output, errors) = run(&mut trax(&db, arguments));
        assert_eq!(code, Some(0), "{arguments:?}: {output}{errors}");
        assert!(
            errors.contains(&format!("did you mean \"{meant}\"?")),
            "{arguments:?}: {errors}"
        );
    }
}

#[tokio::test]
async fn a_worker_a_token_and_a_role_that_nothing_has_are_answered_too() {
    let (db, s) = session().await;
    let role = new_name("operator");
    s.get(&format!("create role {role}")).await;
    s.get("select trax.report_worker('web-1', '1 h'), trax.acquire_token('deploy', 'me', 1, '1 h'), trax.pause()")
        .await;
    s.get("select trax.schedule('nightly-report', 't')").await;
    let mistyped = format!("{role}x");
    for (arguments, meant) in [
        (&["jobs", "list", "--worker", "web1"][..], "web-1"),
        (&["tokens", "deplyo"], "deploy"),
        (&["audit", "--name", "nightly-reprot"], "nightly-report"),
        (&["audit", "--role", &mistyped], &role),
    ] {
        let (code, output, errors) = run(&mut trax(&db, arguments));
        assert_eq!(code, Some(0), "{arguments:?}: {output}{errors}");
        assert!(
            errors.contains(&format!("did you mean \"{meant}\"?")),
            "{arguments:?}: {errors}"
        );
    }
    let errors = refused(&db, 1, &["grant", &mistyped, "reader"]);
    assert!(
        errors.contains(&format!("did you mean \"{role}\"? see the roles")),
        "{errors}"
    );
    // Options with a fixed set of values suggest the intended value.
    for (arguments, meant) in [
        (&["audit", "--action", "cancle"][..], "cancel"),
        (&["audit", "--kind", "manifst"], "manifest"),
        (&["jobs", "list", "--state", "qeued"], "queued"),
        (&["dead", "list", "--status", "requed"], "requeued"),
        (&["grant", &role, "raeder"], "reader"),
    ] {
        let errors = refused(&db, 64, arguments);
        assert!(
            errors.contains(&format!("a similar value exists: '{meant}'")),
            "{arguments:?}: {errors}"
        );
    }
}

#[test]
fn a_number_that_cannot_be_read_is_answered_with_how_to_write_one() {
    let whole = "tip: write a whole number, such as 5";
    for (arguments, tip) in [
        (&["enqueue", "t", "--priority", "5.5"][..], whole),
        (&["enqueue", "t", "--max-retries", "lots"], whole),
        (&["jobs", "show", "abc"], whole),
        (&["dead", "ack", ""], whole),
        (
            &["jobs", "cancel", "1,2"],
            "tip: separate numbers with blanks: 1 2",
        ),
    ] {
        let (code, _, errors) = run(bare().args(arguments));
        assert_eq!(code, Some(64), "{errors}");
        assert!(errors.contains(tip), "{errors}");
    }
}

#[test]
fn a_command_or_option_is_suggested_only_when_it_is_near() {
    for (arguments, suggested) in [
        (&["nosuch"][..], None),
        (&["statsu"], Some("'status'")),
        (&["enqueue", "t", "--group-name", "g"], Some("'--group'")),
        (&["enqueue", "t", "--prio", "1"], Some("'--priority'")),
        (&["enqueue", "t", "--loudly"], None),
    ] {
        let (code, _, errors) = run(bare().args(arguments));
        assert_eq!(code, Some(64), "{errors}");
        let similar = errors.lines().find(|line| line.contains("similar"));
        assert_eq!(similar.is_some(), suggested.is_some(), "{errors}");
        assert!(errors.contains(suggested.unwrap_or_default()), "{errors}");
    }
}

#[tokio::test]
async fn a_selection_that_is_empty_is_answered_with_all_that_can_be_typed() {
    let (db, s) = session().await;
    s.get("select trax.enqueue('t')").await;
    for arguments in [
        &["jobs", "cancel"][..],
        &["jobs", "cancel", "--yes"],
        &["dead", "requeue"],
        &["dead", "ack", "--note", "seen"],
        &["dead", "requeue", "--task", "t"],
    ] {
        let errors = refused(&db, 64, arguments);
        assert!(errors.contains("type ids, or --"), "{errors}");
        assert!(errors.contains("--all"), "{errors}");
    }
    assert_eq!(s.get("select state from trax.job").await, "queued");
}

#[tokio::test]
async fn the_acts_that_can_be_asked_for_are_those_that_are_recorded() {
    let (db, s) = session().await;
    let errors = refused(&db, 64, &["audit", "--action", "?"]);
    let known = errors.split("[possible values: ").nth(1);
    let known = known.and_then(|known| known.split(']').next());
    let known = known.expect("clap lists the values").replace(", ", " ");
    let described = s
        .get(
            "select col_description('trax.audit'::regclass, attnum) from pg_attribute
              where attrelid = 'trax.audit'::regclass and attname = 'action'",
        )
        .await;
    let described = described.trim_start_matches("What was done: ");
    let described = described.replace(" or ", ", ").replace(',', "");
    assert_eq!(known, described.trim_end_matches('.'));
}
