//! The level of a role: one that another replaces is named.

use harness::session::session;
use harness::shared_server;
use trax_client::testkit::Database;

/// Grants a level, and returns the notice with its hint.
fn grant(db: &Database, role: &str, grant: &str) -> String {
    let mut psql = shared_server().command("psql");
    let sql = format!("select trax.grant_access('{role}', {grant})");
    psql.args(["-Xqt", "-d", db.name(), "-c", &sql]);
    let output = psql.output().expect("psql runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn a_level_that_another_replaces_is_named_with_what_keeps_both() {
    let (db, s) = session().await;
    let role = format!("{}_app", db.name());
    s.get(&format!("create role {role}")).await;
    for quiet in [
        "'worker'",
        "'worker'",
        "'worker', tasks => '{mail}'",
        "'none'",
        "'worker'",
    ] {
        assert_eq!(grant(&db, &role, quiet), "", "{quiet}");
    }
    let said = grant(&db, &role, "'reader'");
    assert!(
        said.contains(&format!(
            "role \"{role}\" no longer has the level \"worker\""
        )) && said.contains(&format!(
            "To keep both, grant reader to a role that {role} is a member of; then: \
                 select trax.grant_access('{role}', 'worker')"
        )),
        "{said}"
    );
    let limited = "'worker', tasks => array['it''s', 'mail'], groups => array['g']";
    grant(&db, &role, limited);
    let said = grant(&db, &role, "'producer'");
    assert!(
        said.contains(&format!("select trax.grant_access('{role}', {limited})")),
        "with its limits: {said}"
    );
    assert_eq!(grant(&db, &role, "'admin'"), "");
    let said = grant(&db, &role, "'producer', groups => '{mail}'");
    assert!(
        said.contains("no longer has the level \"admin\"")
            && said.contains("An admin has every level"),
        "{said}"
    );
}

#[tokio::test]
async fn advice_to_grant_a_level_says_when_it_takes_another_away() {
    let (db, s) = session().await;
    let role = format!("{}_app", db.name());
    s.get(&format!(
        "create role {role} login; select trax.grant_access('{role}', 'worker');
        grant execute on function trax.status() to {role}"
    ))
    .await;
    let fix = format!(
        "select d.fix from trax.diagnose(role => '{role}') d where d.cause = 'missing_grants'"
    );
    let said = s.get(&fix).await;
    assert!(
        said.contains("to keep both, grant one of them to a role that it is a member of"),
        "{said}"
    );
    // A call that the role lacks is granted again with its limits, also those of a role that it is
    // a member of.
    let member = format!("{role}_member");
    s.get(&format!(
        "select trax.grant_access('{role}', 'worker', tasks => array['it''s'], groups => '{{g}}');
        revoke execute on function trax.heartbeat(bigint[], uuid[], interval, bigint[]) from {role};
        create role {member} login in role {role}"
    ))
    .await;
    for named in [&role, &member] {
        let fix = format!(
            "select d.fix from trax.diagnose(role => '{named}') d where d.cause = 'missing_grants'"
        );
        assert_eq!(
            s.get(&fix).await,
            format!(
                "select trax.grant_access('{role}', 'worker', tasks => array['it''s'], groups => array['g'])"
            )
        );
    }
    s.get(&format!(
        "select trax.grant_access('{role}', 'admin'); revoke execute on function trax.check(interval) from {role}"
    ))
    .await;
    assert_eq!(
        s.get(&fix).await,
        format!("select trax.grant_access('{role}', 'admin')")
    );
}
