//! The pages of `trax web` over a long history: the time of each at a steady pace, the size of the
//! first one, and the server's cost of many viewers of live numbers.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use trax_web::{Options, Site};

use super::bench_database::{BenchDatabase, TASK};
use super::report::{Figure, Round, Sample, Unit};
use trax_terminal::Failure;

/// The pages, with their names in the table.
const PAGES: [(&str, &str); 11] = [
    ("overview", "/"),
    ("jobs", "/jobs"),
    ("jobs, filtered", "/jobs?state=failed&group=group+3"),
    ("job", "/jobs/-1000"),
    ("manifests", "/manifests"),
    ("manifest", "/manifests/bench"),
    ("groups", "/groups"),
    ("dead letters", "/dead"),
    ("workers", "/workers"),
    ("doctor", "/doctor"),
    ("audit", "/audit"),
];
/// The requests of a first visit.
const FIRST: [&str; 3] = ["/", "/style.css", "/script.js"];
/// The interval between requests: 20 a second.
const PACE: Duration = Duration::from_millis(50);
const VIEWERS: usize = 100;
/// The length of the measurement with viewers.
const LOOK: Duration = Duration::from_secs(10);
const GROUPS: i64 = 10;
/// More requests of a page do not improve the percentile.
const MOST: u32 = 100;

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let (runs, jobs) = (bench.sizes.history, bench.sizes.waiting);
    bench.step(&format!("{runs} runs, {jobs} jobs"));
    fill(bench, runs, jobs).await?;
    let site = Site::new(bench.config(), Options::default());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let serving = tokio::spawn(async move { site.serve(listener).await });
    let mut pages: Vec<Vec<Round>> = vec![Vec::new(); PAGES.len()];
    let (mut sizes, mut viewers) = (Vec::new(), Vec::new());
    for number in 0..=bench.sizes.rounds {
        bench.step(&format!("round {number} of {}", bench.sizes.rounds));
        let times = pace(port, bench.sizes.samples.min(MOST)).await?;
        let size = first_visit(port).await?;
        let cost = watched(bench, port).await?;
        if number > 0 {
            for (rounds, time) in pages.iter_mut().zip(times) {
                rounds.push(bare(time));
            }
            sizes.push(bare(size));
            viewers.extend(cost.map(bare));
        }
    }
    serving.abort();
    let what = format!("with {runs} runs and {jobs} waiting jobs");
    let mut figures: Vec<Figure> = PAGES
        .iter()
        .zip(pages)
        .map(|((name, path), rounds)| Figure {
            measure: (*name).to_owned(),
            unit: Unit::Milliseconds,
            what: format!("the 95th percentile of {path} at 20 requests a second, {what}"),
            floor: String::new(),
            rounds,
        })
        .collect();
    figures.push(Figure {
        measure: "first page".to_owned(),
        unit: Unit::Kilobytes,
        what: "all that a first visit fetches, 1,000 bytes each".to_owned(),
        floor: String::new(),
        rounds: sizes,
    });
    figures.push(Figure {
        measure: "100 viewers".to_owned(),
        unit: Unit::Percent,
        what: format!("of one core, used by all processes of the server while {VIEWERS} look at live numbers, {what}"),
        floor: String::new(),
        rounds: viewers,
    });
    Ok(figures)
}

fn bare(value: f64) -> Round {
    Round {
        measured: Sample::bare(value),
        floor: None,
    }
}

/// Writes a history with one attempt per millisecond up to now, and queues jobs.
async fn fill(bench: &BenchDatabase, runs: i64, jobs: i64) -> Result<(), Failure> {
    bench.clear().await?;
    let history = format!(
        "select trax.schedule('bench', task => '{TASK}', cron => '@daily');
         insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, manifest_id, manifest, attempt, priority,
             final, state, failure_kind, error, task, group_name, worker, input)
         select n - {runs} - 1, t.at, t.at, t.at, t.at, case n % 100 when 0 then m.manifest_id end, case n % 100 when 0 then 'bench' end,
             1, 0, true, case n % 20 when 0 then 'failed' else 'completed' end, case n % 20 when 0 then 'error' end,
             case n % 20 when 0 then 'connection refused' end, '{TASK}', 'group ' || n % {GROUPS}, 'bench', '{{}}'
         from generate_series(1, {runs}) n
         cross join lateral (select now() - ({runs} - n) * interval '1 ms') t (at)
         cross join trax.manifest m
         where m.name = 'bench'"
    );
    bench.sql(&history).await?;
    for group in 0..GROUPS {
        let options = format!(", group_name => 'group {group}'");
        bench.load(jobs / GROUPS, &options).await?;
    }
    bench.settle_queue().await?;
    // As autovacuum leaves it.
    bench.sql("vacuum (analyze) trax.run").await
}

/// Requests every page `samples` times, one request per 50 ms without waiting for answers; returns
/// the 95th percentile of each in milliseconds.
async fn pace(port: u16, samples: u32) -> Result<Vec<f64>, Failure> {
    let mut ticks = tokio::time::interval(PACE);
    let mut asked = JoinSet::new();
    for _ in 0..samples {
        for (page, (_, path)) in PAGES.iter().enumerate() {
            ticks.tick().await;
            asked.spawn(async move {
                let sent = Instant::now();
                get(port, path).await?;
                Ok::<_, Failure>((page, sent.elapsed().as_secs_f64() * 1e3))
            });
        }
    }
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); PAGES.len()];
    while let Some(answer) = asked.join_next().await {
        let (page, time) = answer.map_err(|error| Failure::new(error.to_string()))??;
        times[page].push(time);
    }
    Ok(times.into_iter().map(percentile).collect())
}

/// Returns the 95th percentile.
fn percentile(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    let place = (times.len() * 95).div_ceil(100).max(1) - 1;
    times.get(place).copied().unwrap_or(0.0)
}

/// Returns the total size of a first visit, in thousands of bytes.
async fn first_visit(port: u16) -> Result<f64, Failure> {
    let mut size = 0;
    for path in FIRST {
        size += get(port, path).await?;
    }
    Ok(size as f64 / 1e3)
}

/// Returns the percentage of a core that the server uses with all viewers; `None` if its processes
/// are not visible.
async fn watched(bench: &BenchDatabase, port: u16) -> Result<Option<f64>, Failure> {
    let mut viewers = JoinSet::new();
    for _ in 0..VIEWERS {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream
            .write_all(b"GET /live HTTP/1.1\r\nHost: bench\r\n\r\n")
            .await?;
        // All viewers are connected before the measurement.
        let mut part = vec![0; 4096];
        if stream.read(&mut part).await? == 0 {
            return Err(Failure::new("the stream of live numbers ended"));
        }
        viewers.spawn(async move { while stream.read(&mut part).await.is_ok_and(|n| n > 0) {} });
    }
    let begun = bench.meter.begin().await?;
    tokio::time::sleep(LOOK).await;
    let cost = bench.meter.end(begun).await?;
    Ok(cost
        .cpu_seconds
        .map(|seconds| seconds / cost.seconds * 100.0))
}

/// Returns the length of an answer, which must be a page.
async fn get(port: u16, path: &str) -> Result<usize, Failure> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    if !answer.starts_with(b"HTTP/1.1 200") {
        let text = String::from_utf8_lossy(&answer)
            .chars()
            .take(500)
            .collect::<String>();
        return Err(Failure::new(format!("{path} was not answered: {text}")));
    }
    Ok(answer.len())
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn of_a_hundred_times_five_are_longer() {
        assert_eq!(percentile((1..=100).rev().map(f64::from).collect()), 95.0);
        assert_eq!(percentile(vec![7.0]), 7.0);
    }
}
