//! Reads the final state of the router and its shards.

use super::testbed::{MARKET, STILL, Testbed, clock};
use crate::fact::{self, Cluster, Facts, Letter};
use tokio_postgres::{Client, Error, Row};

const SETTINGS: &str = "settings";
/// The kinds of rows that a shard holds by group.
const HOLDINGS: [(&str, &str); 5] = [
    ("a waiting job", "trax.work_queue"),
    ("a running job", "trax.lease"),
    ("a manifest", "trax.manifest"),
    (
        SETTINGS,
        "(select name as group_name from trax.manifest_group)",
    ),
    (
        "a dead letter",
        "(select group_name from trax.dead_letter where resolved_at is null)",
    ),
];

/// Adds the contents of the tables: one snapshot of each shard.
pub(crate) async fn read(testbed: &Testbed, facts: &mut Facts) -> Result<(), Error> {
    let mut cluster = facts.cluster.take().unwrap_or_default();
    cluster.still = STILL.iter().map(|(group, _)| *group).collect();
    for shard in &testbed.shards {
        let number = shard.number.expect("it is a shard");
        cluster.shards.insert(number);
        let client = shard.admin().await;
        let snapshot = "begin isolation level repeatable read";
        client.batch_execute(snapshot).await?;
        fact::read(&client, number, facts).await?;
        read_shard(&client, number, &mut cluster).await?;
        let clock = clock(number);
        cluster.placements.insert(clock, None);
    }
    let router = testbed.router.admin().await;
    read_router(&router, &mut cluster, facts).await?;
    facts.cluster = Some(cluster);
    Ok(())
}

async fn read_shard(client: &Client, number: i32, cluster: &mut Cluster) -> Result<(), Error> {
    for (kind, table) in HOLDINGS {
        let groups = format!("select distinct group_name from {table} held");
        let rows = client.query(&groups, &[]).await?;
        let holding = |row: &Row| (number, row.get(0), kind);
        let holdings = rows.iter().map(holding);
        // A mover killed before its move is recorded leaves settings at the target shard.
        let is_left = |group: &str| kind == SETTINGS && MARKET.moving.contains(&group);
        let counts = |(_, group, _): &(i32, String, &str)| !is_left(group);
        cluster.holdings.extend(holdings.filter(counts));
    }
    let departures = "select format('batch %s of group %s to shard %s', batch, group_name, target) from trax.departure";
    let departures = client.query(departures, &[]).await?;
    let departures = departures.iter().map(|row| row.get(0));
    cluster.departures.extend(departures);
    let letters = "select id, job_id, resolution_note like 'moved to shard %', requeued_job_id from trax.dead_letter";
    let letter = |row: &Row| Letter {
        id: row.get(0),
        job: row.get(1),
        has_moved: row.get::<_, Option<bool>>(2).unwrap_or(false),
        requeued_as: row.get(3),
    };
    let letters = client.query(letters, &[]).await?;
    cluster.letters.extend(letters.iter().map(letter));
    Ok(())
}

async fn read_router(
    client: &Client,
    cluster: &mut Cluster,
    facts: &mut Facts,
) -> Result<(), Error> {
    let moving = "select group_name from trax_router.group_placement where moves_from is not null";
    let moving = client.query(moving, &[]).await?;
    cluster.moving = moving.iter().map(|row| row.get(0)).collect();
    let complaints = "select format('%s: %s at shard %s', rule, detail, shard) from trax.check()";
    for row in client.query(complaints, &[]).await? {
        facts.complaints.push(row.get(0));
    }
    let place =
        "select case when not trax_router.is_spread($1) then trax_router.shard_of_group($1) end";
    let held = cluster.holdings.iter().map(|(_, group, _)| group.clone());
    let still = cluster.still.iter().map(|group| (*group).to_owned());
    let clocks = cluster.placements.keys().cloned();
    let groups: Vec<String> = held.chain(still).chain(clocks).collect();
    for group in groups {
        let placed = client.query_one(place, &[&group]).await?.get(0);
        cluster.placements.insert(group, placed);
    }
    Ok(())
}
