//! A role has its own rights on each shard, where the router connects as that role.

use super::{Cluster, has_plproxy};
use harness::rights::{assert_matrix, default_privileges_for, rights};
use harness::scheduler::new_name;
use harness::session::Session;
use harness::shared_server;

/// Makes a role on the router and on all shards.
async fn make_role(cluster: &Cluster, role: &str) {
    let make = format!("create role {role} login");
    cluster.router.get(&make).await;
    for (_, shard) in &cluster.shards {
        shard.get(&make).await;
    }
}

#[tokio::test]
async fn a_role_may_do_what_it_may_do_on_the_shards() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    let name = cluster.database.name().to_owned();
    let (producer, admin, limited, stranger) = (
        format!("\"{name} producer\""),
        format!("{name}_admin"),
        format!("{name}_limited"),
        format!("{name}_stranger"),
    );
    for role in [&producer, &admin, &limited, &stranger] {
        make_role(&cluster, role).await;
    }
    s.get(&format!(
        "select trax.grant_access('{producer}', 'producer'); select trax.grant_access('{admin}', 'admin');
        select trax.grant_access('{limited}', 'producer', tasks => '{{mail}}')"
    ))
    .await;

    let p = Session::as_role(&cluster.database, producer.trim_matches('"')).await;
    p.get("select trax.enqueue('a'); insert into trax.new_job (task) values ('b')")
        .await;
    let refusal = p.refusal("select trax.schedule('m', 't')").await;
    assert_eq!(refusal.code, "42501", "{refusal}");
    let refusal = p.refusal("select trax.pause('x')").await;
    assert_eq!(refusal.code, "42501", "{refusal}");
    for owners in [
        "select trax_router.add_shard(1, 'host=x')",
        "select trax_router.close_shard(1, 'x')",
        "select trax_router.identify('host=127.0.0.1 dbname=postgres')",
        "select trax_router.spread_places()",
        "select trax_router.place_group('g', 1)",
        "select trax_router.grant_use('postgres', true)",
        "select trax_router.hold_manifests()",
        "select trax_router.forget('m')",
        "select * from trax_router.shard",
        "update trax_router.place set shard = 1",
    ] {
        assert_eq!(p.refusal(owners).await.code, "42501", "{owners}");
    }

    let l = Session::as_role(&cluster.database, &limited).await;
    l.get("select trax.enqueue('mail')").await;
    assert_eq!(l.refusal("select trax.enqueue('a')").await.code, "42501");

    let a = Session::as_role(&cluster.database, &admin).await;
    a.get("select trax.schedule('m', 't'); select trax.trigger('m'); select count(*) from trax.status()").await;
    a.get(&format!("select trax.grant_access('{stranger}', 'reader')"))
        .await;
    let r = Session::as_role(&cluster.database, &stranger).await;
    r.get("select count(*) from trax.metrics()").await;
    assert_eq!(r.refusal("select trax.enqueue('a')").await.code, "42501");
    a.get(&format!("select trax.revoke_access('{stranger}')"))
        .await;
    assert_eq!(
        r.refusal("select count(*) from trax.metrics()").await.code,
        "42501"
    );
    s.get(&format!("select trax.grant_access('{limited}', 'none')"))
        .await;
    assert_eq!(l.refusal("select trax.enqueue('mail')").await.code, "42501");
    s.get(&format!("drop role {stranger}; drop role {limited}"))
        .await;
}

#[tokio::test]
async fn a_role_that_a_shard_does_not_know_is_told_so() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(1).await;
    let s = &cluster.router;
    let role = format!("{}_only_here", cluster.database.name());
    s.get(&format!("create role {role} login")).await;
    let refusal = s
        .refusal(&format!("select trax.grant_access('{role}', 'producer')"))
        .await;
    assert_eq!(refusal.code, "42704", "{refusal}");
    s.get(&format!("select trax_router.grant_use('{role}', false)"))
        .await;
    let r = Session::as_role(&cluster.database, &role).await;
    let refusal = r.refusal("select trax.enqueue('a')").await;
    assert_eq!(refusal.code, "28000", "{refusal}");
    assert_eq!(refusal.message, "shard 1 refuses the connection");
    assert!(
        refusal
            .detail
            .contains(&format!("role \"{role}\" does not exist")),
        "{refusal}"
    );
}

#[tokio::test]
async fn a_shard_that_refuses_a_role_or_lacks_its_database_is_not_away() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    let role = format!("{}_on_one", cluster.database.name());
    s.get(&format!("create role {role} login")).await;
    // The shards are on separate servers.
    let make = format!("create role {role} login; select trax.grant_access('{role}', 'admin')");
    cluster.shard(1).get(&make).await;
    s.get(&format!("select trax_router.grant_use('{role}', false)"))
        .await;
    let r = Session::as_role(&cluster.database, &role).await;
    // A job that may run anywhere is not moved from a shard that refuses it to another one.
    let anywhere = "select trax.enqueue('a') from generate_series(1, 50)";
    let divided = "select trax.enqueue_many('a', '{1, 2, 3, 4}')";
    for call in [anywhere, divided, "select * from trax.status()"] {
        let refusal = r.refusal(call).await;
        assert_eq!(refusal.code, "28000", "{call}: {refusal}");
        assert!(
            refusal.message.starts_with("shard 2 refuses"),
            "{call}: {refusal}"
        );
        assert!(
            refusal.detail.contains("Nothing was done there."),
            "{refusal}"
        );
    }
    s.get("update trax_router.shard set address = address || '_gone' where number = 2")
        .await;
    let refusal = s.refusal("select * from trax.status()").await;
    assert_eq!(refusal.code, "3D000", "{refusal}");
    assert!(refusal.detail.contains("does not exist"), "{refusal}");
}

#[tokio::test]
async fn a_worker_sees_its_job_after_a_group_has_moved() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    let worker = format!("{}_worker", cluster.database.name());
    make_role(&cluster, &worker).await;
    s.get(&format!("select trax.grant_access('{worker}', 'worker')"))
        .await;
    let w = Session::as_role(&cluster.database, &worker).await;
    let id = w
        .number("select trax.enqueue('a', group_name => 'g')")
        .await;
    let to = 3 - (id >> 43);
    s.get(&format!("call trax_router.move_group('g', {to}, null)"))
        .await;
    let state = format!("select state from trax.get_jobs('{{{id}}}')");
    assert_eq!(w.get(&state).await, "queued");
}

#[tokio::test]
async fn rights_are_revoked_wherever_that_is_possible() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let s = &cluster.router;
    let role = format!("{}_lone", cluster.database.name());
    make_role(&cluster, &role).await;
    let grant = format!("select trax.grant_access('{role}', 'producer')");
    let revoke = format!("select trax.revoke_access('{role}')");
    let may = format!("select has_schema_privilege('{role}', 'trax', 'usage')");
    s.get(&grant).await;
    let address = "select address from trax_router.shard where number = 1";
    let address = s.get(address).await;
    s.get(
        "update trax_router.shard set address = 'host=127.0.0.1 port=1 dbname=x' where number = 1",
    )
    .await;
    let refusal = s.refusal(&revoke).await;
    assert_eq!(refusal.code, "08001", "{refusal}");
    assert!(
        refusal.detail.contains("Done on the shards 2, 3"),
        "{refusal}"
    );
    for shard in [2, 3] {
        assert_eq!(cluster.shard(shard).get(&may).await, "f");
    }
    s.get(&format!(
        "update trax_router.shard set address = '{address}' where number = 1"
    ))
    .await;
    s.get(&grant).await;
    // If the role no longer exists on a shard, there is nothing to revoke.
    let first = cluster.shard(1);
    first
        .get(&format!(
            "select trax.revoke_access('{role}'); drop role {role}"
        ))
        .await;
    s.get(&format!("select trax.grant_access('{role}', 'none')"))
        .await;
    assert_eq!(s.get(&may).await, "f");
    s.get(&format!("drop role {role}")).await;
}

#[tokio::test]
async fn each_level_may_do_at_a_router_what_the_matrices_say_and_nothing_else() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let mut levels = Vec::new();
    for level in ["PUBLIC", "reader", "producer", "worker", "admin"] {
        let role = format!("{}_{}", cluster.database.name(), level.to_lowercase());
        make_role(&cluster, &role).await;
        if level != "PUBLIC" {
            let grant = format!("select trax.grant_access('{role}', '{level}')");
            cluster.router.get(&grant).await;
        }
        levels.push((level, role));
    }
    for (schema, matrix) in [
        ("trax", include_str!("facade_matrix.txt")),
        ("trax_router", include_str!("matrix.txt")),
    ] {
        assert_matrix(&cluster.router, schema, &levels, matrix).await;
    }
}

#[tokio::test]
async fn default_privileges_give_no_rights_at_a_router() {
    if !has_plproxy() {
        return;
    }
    let database = shared_server().plain_database(&new_name("fresh")).await;
    let s = Session::of(&database.expect("a database is made")).await;
    let role = new_name("team");
    s.get(&format!("create role {role} login")).await;
    // A schema in which other roles may create objects is refused.
    default_privileges_for(&s, &role, &["tables", "sequences", "functions"]).await;
    s.get("create extension trax_router cascade").await;
    for schema in ["trax", "trax_router"] {
        assert_eq!(rights(&s, &role, schema).await, "", "{schema}");
    }
}
