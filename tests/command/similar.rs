//! Did you mean: names that nothing has, and one that is like them.

use super::{refused, trax};
use harness::process::run;
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
    let errors = refused(&db, 1, &["manifest", "show", "weekly"]);
    assert!(!errors.contains("did you mean"), "{errors}");
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
