//! Moving a group while its jobs are enqueued and run, with movers that are killed.

use super::move_group::call;
use super::{Cluster, has_plproxy};
use harness::session::Session;
use harness::{PATIENCE, eventually};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Claims, completes and fails jobs until told to stop, and then until no job is left.
async fn work(s: Session, stop: Arc<AtomicBool>) {
    let mut turn = 0;
    loop {
        let was_last = stop.load(Ordering::Relaxed);
        let jobs = s.claim("worker => 'w', max_jobs => 5").await;
        if jobs.is_empty() {
            if was_last {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        for job in jobs {
            turn += 1;
            let outcome = match turn % 7 {
                0 => format!("select trax.fail({}, 'no', retry_in => '0 s')", job.key()),
                1 => format!("select trax.release({})", job.key()),
                _ => format!("select trax.complete({})", job.key()),
            };
            s.get(&outcome).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_under_load_is_moved_and_its_mover_killed_at_any_moment() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let group = cluster.group_on(1).await;
    let (enough, stop) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut workers = Vec::new();
    for (database, _) in &cluster.shards {
        for _ in 0..2 {
            let session = Session::of(database).await;
            workers.push(tokio::spawn(work(session, stop.clone())));
        }
    }
    let producer = Session::of(&cluster.database).await;
    let (is_enough, to) = (enough.clone(), group.clone());
    let producer = tokio::spawn(async move {
        let mut ids = Vec::new();
        let mut count = 3000;
        while !is_enough.load(Ordering::Relaxed) {
            let many = format!(
                "select trax.enqueue_many('t', array_fill('1'::jsonb, array[{count}]), group_name => '{to}', max_retries => 1000)"
            );
            let text = producer.get(&many).await;
            ids.extend(text.lines().map(|id| id.parse::<i64>().expect("a job id")));
            count = 10;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        ids
    });
    let s = &cluster.router;
    let mut killed = 0;
    for (turn, target) in [2, 3, 1, 2].into_iter().enumerate() {
        let mut patience = 7 + turn as u64;
        loop {
            let mover = Session::of(&cluster.database).await;
            let pid = mover.pid();
            let mut moving = mover.spawn(call(&group, target));
            let ended = tokio::time::timeout(Duration::from_millis(patience), &mut moving).await;
            match ended {
                Ok(done) => {
                    let (_, moved) = done.expect("it does not panic");
                    moved.expect("the move ends well");
                    break;
                }
                // The patience grows until a move has enough time.
                Err(_) if patience < 400 => {
                    killed += 1;
                    s.get(&format!("select pg_terminate_backend({pid})")).await;
                    moving.await.ok();
                    patience = patience * 5 / 4 + 3;
                }
                Err(_) => {
                    let (_, moved) = moving.await.expect("it does not panic");
                    moved.expect("the move ends well");
                    break;
                }
            }
        }
        let place = format!(
            "select trax.shard_of(trax.enqueue('alone', group_name => '{group}', run_at => 'tomorrow'))"
        );
        assert_eq!(s.get(&place).await, target.to_string());
    }
    assert!(killed >= 8, "{killed}");
    // The workers stop when the queue is empty, so they must wait for the last job.
    enough.store(true, Ordering::Relaxed);
    let ids = producer.await.expect("it does not panic");
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.expect("it does not panic");
    }
    let mut completed: HashMap<i64, usize> = HashMap::new();
    for number in 1..=3 {
        let shard = cluster.shard(number);
        eventually("nothing runs", PATIENCE, async || {
            match shard.get("select count(*) from trax.lease").await.as_str() {
                "0" => Ok(()),
                left => Err(left.to_owned()),
            }
        })
        .await;
        let done = "select job_id from trax.run where state = 'completed' and task = 't'";
        for id in shard.get(done).await.lines() {
            *completed.entry(id.parse().expect("an id")).or_default() += 1;
        }
        shard.assert_healthy().await;
    }
    let lost: Vec<_> = ids
        .iter()
        .filter(|id| !completed.contains_key(id))
        .collect();
    assert!(lost.is_empty(), "{} of {}: {lost:?}", lost.len(), ids.len());
    let doubled: Vec<_> = completed.iter().filter(|(_, times)| **times > 1).collect();
    assert!(doubled.is_empty(), "{doubled:?}");
    assert_eq!(completed.len(), ids.len());
    let alone = "select count(*) from trax.work_queue where task = 'alone'";
    assert_eq!(cluster.shard(2).get(alone).await, "4");
}
