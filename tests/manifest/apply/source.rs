//! Documents of several sources: each owns the objects that it names, and prunes only those.

use super::apply;
use harness::session::{Session, session};

fn document(names: &[&str]) -> String {
    let list: Vec<String> = names
        .iter()
        .map(|name| format!(r#"{{"name": "{name}", "task": "t", "group_name": "{name}"}}"#))
        .collect();
    let groups: Vec<String> = names
        .iter()
        .map(|name| format!(r#"{{"name": "{name}", "priority": 3}}"#))
        .collect();
    format!(
        r#"{{"groups": [{}], "manifests": [{}]}}"#,
        groups.join(","),
        list.join(",")
    )
}

const OWNERS: &str =
    "select string_agg(concat_ws(' ', m.name, m.source, g.source), ', ' order by m.name)
    from trax.manifest m join trax.manifest_group g on g.name = m.name";

#[tokio::test]
async fn a_source_prunes_what_it_made_and_nothing_else() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('hand', 't'), trax.configure_group('hand')")
        .await;
    apply(&s, &document(&["none"]), "").await;
    apply(&s, &document(&["a1", "a2"]), ", source => 'a'").await;
    apply(&s, &document(&["b1"]), ", source => 'b'").await;
    assert_eq!(s.get(OWNERS).await, "a1 a a, a2 a a, b1 b b, hand, none");
    let seen = apply(&s, &document(&["a1"]), ", prune => true, source => 'a'").await;
    assert_eq!(
        seen,
        "unchanged|group|a1\nunchanged|manifest|a1\nremoved|manifest|a2\nremoved|group|a2"
    );
    apply(&s, r#"{}"#, ", prune => true").await;
    assert_eq!(s.get(OWNERS).await, "a1 a a, b1 b b, hand");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_source_takes_over_what_belongs_to_none_and_is_refused_what_belongs_to_another() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 't', group_name => 'm'), trax.configure_group('m', priority => 3)")
        .await;
    let seen = apply(&s, &document(&["m"]), ", source => 'a'").await;
    assert_eq!(seen, "changed|group|m\nchanged|manifest|m");
    assert_eq!(s.get(OWNERS).await, "m a a");
    let before = s.everything().await;
    for of_m in [
        r#"{"manifests": [{"name": "m", "task": "t"}]}"#,
        r#"{"groups": [{"name": "m"}]}"#,
    ] {
        let refusal = s
            .refusal(&format!("select trax.apply('{of_m}', source => 'b')"))
            .await;
        assert_eq!(refusal.code, "55000", "{refusal}");
        let text = refusal.to_string();
        assert!(text.contains("\"m\" belongs to source \"a\""), "{text}");
        assert_eq!(s.everything().await, before);
    }
    // A document without a source changes the manifest but not its owner.
    apply(&s, r#"{"manifests": [{"name": "m", "task": "u"}]}"#, "").await;
    assert_eq!(s.get(OWNERS).await, "m a a");
    let seen = apply(&s, "{}", ", prune => true, source => 'a'").await;
    assert_eq!(seen, "removed|manifest|m\nremoved|group|m");
    let empty = s.refusal("select trax.apply('{}', source => '')").await;
    assert_eq!(empty.code, "22023", "{empty}");
}

#[tokio::test]
async fn of_fifty_that_apply_the_same_document_at_once_one_changes_something() {
    let (db, s) = session().await;
    apply(&s, &document(&["old", "kept"]), ", source => 'app'").await;
    let acts = "select count(*) from trax.audit";
    let sql = format!(
        "select string_agg(distinct action, ' ' order by action)
         from trax.apply($d${}$d$, prune => true, source => 'app')",
        document(&["kept", "new"])
    );
    // The first session holds the lock until all others wait for it.
    s.get("begin").await;
    assert_eq!(s.get(&sql).await, "created removed unchanged");
    let watcher = Session::of(&db).await;
    let mut replicas = Vec::new();
    for _ in 0..50 {
        let replica = Session::of(&db).await;
        let pid = replica.pid();
        replicas.push(replica.spawn(sql.clone()));
        watcher.sees_waiting(pid).await;
    }
    let before = s.number(acts).await;
    s.get("commit").await;
    for replica in replicas {
        let (_, applied) = replica.await.expect("the task ends");
        assert_eq!(applied.expect("it is no error"), "unchanged");
    }
    assert_eq!(s.number(acts).await, before);
    assert_eq!(s.get(OWNERS).await, "kept app app, new app app");
    s.assert_healthy().await;
}
