//! Graphs and batches through the router: all jobs of one are on one shard.

use super::{Cluster, has_plproxy};

#[tokio::test]
async fn a_graph_and_a_batch_are_whole_on_one_shard() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let s = &cluster.router;
    for number in 1..=5 {
        let graph = format!(
            r#"select count(distinct trax.shard_of(job_id)), count(*) from trax.enqueue_graph('{{"jobs": [
                {{"name": "a", "task": "a"}}, {{"name": "b", "task": "b", "needs": ["a"]}}]}}', 'key {number}')"#
        );
        assert_eq!(s.get(&graph).await, "1|2");
        assert_eq!(s.get(&graph).await, "1|2", "the key is alive");
    }
    let batch = s.number("select trax.open_batch('report')").await;
    let ids = format!(
        "select trax.shard_of(trax.enqueue('m', batch => {batch})) = trax.shard_of({batch}) from generate_series(1, 9)
         union select trax.shard_of(i) = trax.shard_of({batch}) from trax.enqueue_many('m', '{{1,2,3}}', batch => {batch}) i"
    );
    assert_eq!(s.get(&ids).await, "t");
    s.get(&format!(
        "insert into trax.new_job (task, batch) values ('m', {batch})"
    ))
    .await;
    assert_eq!(
        s.number(&format!("select trax.seal_batch({batch})")).await,
        13
    );
    let read = format!(
        "select count(*), count(*) filter (where condition = 'ended') from trax.read_graph({batch})"
    );
    assert_eq!(s.get(&read).await, "14|1");
    let needs = format!("select count(*) from trax.read_needs({batch})");
    assert_eq!(s.number(&needs).await, 13);
}

#[tokio::test]
async fn jobs_that_belong_on_different_shards_are_refused() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    let (one, two) = (cluster.group_on(1).await, cluster.group_on(2).await);
    let graph = |first: &str, second: &str| {
        format!(
            r#"select trax.shard_of(job_id) from trax.enqueue_graph('{{"jobs": [
                {{"name": "a", "task": "a", "group_name": "{first}"}}, {{"name": "b", "task": "b", "group_name": "{second}"}}]}}')"#
        )
    };
    assert_eq!(s.get(&graph(&two, "default")).await, "2\n2");
    let refusal = s.refusal(&graph(&one, &two)).await;
    assert_eq!(
        (refusal.code.as_str(), refusal.message.as_str()),
        ("0A000", "the jobs of the graph belong on shards 1 and 2")
    );
    let batch = format!("select trax.open_batch('report', group_name => '{one}')");
    let batch = s.number(&batch).await;
    let refusal = s
        .refusal(&format!(
            "select trax.enqueue('m', group_name => '{two}', batch => {batch})"
        ))
        .await;
    assert_eq!(refusal.code, "0A000", "{refusal}");
    let moved = s
        .refusal(&format!("call trax_router.move_group('{one}', 2, null)"))
        .await;
    assert!(moved.message.contains("or is of a graph"), "{moved}");
}
