//! `trax relay`: moves the rows of outboxes to trax.

use std::process::ExitCode;
use std::time::Duration;

use crate::output::say;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_postgres::config::Host;
use trax_client::Address;
use trax_relay::{Seat, Trouble};
use trax_terminal::{Failure, address, duration_from, print};

const HELP: &str = "\
--outbox-sql makes an outbox in a database without trax, --target-sql makes the tables of the \
relay in the target. Both say which rights its role needs.

  trax relay --outbox-sql | psql -v ON_ERROR_STOP=1 --single-transaction postgres://shop/shop
  trax relay --target-sql | psql -v ON_ERROR_STOP=1 --single-transaction postgres://jobs/jobs
  trax relay --from postgres://relay@shop/shop --to postgres://relay@jobs/jobs

Several relays may run for one outbox: one carries, the others wait until it ends. With several --to each \
group of jobs has one target, which trax_outbox.placement remembers; a target that is down holds up only its own \
rows. For a cluster specify the shards, not the router.";

#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// A database with an outbox; may be repeated
    #[arg(long, value_name = "URL", required_unless_present_any = ["outbox_sql", "target_sql"])]
    from: Vec<String>,
    /// A database with trax; may be repeated; default that of --database-url
    #[arg(long, value_name = "URL")]
    to: Vec<String>,
    /// Write the results of the jobs back into trax_outbox.result
    #[arg(long)]
    results: bool,
    /// Carry the waiting rows and exit
    #[arg(long)]
    once: bool,
    /// The most rows in one transaction
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=10000))]
    batch: u16,
    /// How often to poll when no notification comes
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = at_least_10_ms)]
    poll: Duration,
    /// How long a server may take for one step; a relay that hangs three times as long is replaced
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = at_least_1_s)]
    patience: Duration,
    /// Print the SQL that makes an outbox, and exit
    #[arg(long, exclusive = true)]
    outbox_sql: bool,
    /// Print the SQL that makes the tables of the relay in the target, and exit
    #[arg(long, exclusive = true)]
    target_sql: bool,
}

fn at_least_10_ms(text: &str) -> Result<Duration, String> {
    duration_from(Duration::from_millis(10), text)
}

fn at_least_1_s(text: &str) -> Result<Duration, String> {
    duration_from(Duration::from_secs(1), text)
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    if arguments.outbox_sql || arguments.target_sql {
        let sql = if arguments.outbox_sql {
            trax_relay::OUTBOX_SQL
        } else {
            trax_relay::TARGET_SQL
        };
        say(sql.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let to: Vec<Option<&str>> = match &arguments.to[..] {
        [] => vec![url.as_deref()],
        several => several.iter().map(|to| Some(to.as_str())).collect(),
    };
    let targets = to.into_iter().map(address::from_environment);
    let targets: Vec<Address> = targets.collect::<Result<_, _>>()?;
    let sources: Vec<Address> = arguments
        .from
        .iter()
        .map(|from| address::from_environment(Some(from)))
        .collect::<Result<_, _>>()?;
    look_at(&targets).await?;
    let options = trax_relay::Options {
        batch: arguments.batch.into(),
        poll: arguments.poll,
        results: arguments.results,
        once: arguments.once,
        patience: arguments.patience,
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut relays = JoinSet::new();
    for source in sources {
        for (target, seat) in targets.iter().cloned().zip(Seat::of(targets.len())) {
            let (source, options) = (source.clone(), options.clone());
            let mut name = source.get_dbname().unwrap_or("relay").to_owned();
            if targets.len() > 1 {
                name = format!("{name} to {}", place_of(&target));
            }
            relays.spawn(async move {
                let log = |text: &str| print::log(&name, text);
                let ended = trax_relay::run(&source, &target, &seat, &options, log).await;
                ended.map_err(|trouble| (name, trouble))
            });
        }
    }
    let ended = all_ended(relays);
    tokio::select! {
        ended = ended => ended?,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the location of a target for messages.
fn place_of(target: &Address) -> String {
    let hosts = target.get_hosts().first();
    let host = hosts.map_or_else(String::new, |host| match host {
        Host::Tcp(name) => format!("{name}/"),
        Host::Unix(_) => String::new(),
    });
    format!("{host}{}", target.get_dbname().unwrap_or("target"))
}

/// Succeeds if at least one target can be reached and none is a router, so that an invalid address
/// is reported at startup, as by every command. If one of several targets is down, the others are
/// still served; the same holds for sources.
async fn look_at(targets: &[Address]) -> Result<(), Failure> {
    let mut first = None;
    let mut reached = 0;
    for target in targets {
        match address::connect(target).await {
            Ok(client) => {
                reached += 1;
                match trax_relay::refusal(&client).await {
                    Ok(None) => {}
                    Ok(Some(trouble)) => return Err(failure(trouble)),
                    // The connection may break at any time; the relay reconnects.
                    Err(trouble) => print::log(&place_of(target), &trouble.to_string()),
                }
            }
            Err(error) => {
                if targets.len() > 1 {
                    print::log(&place_of(target), &error.to_string());
                }
                first.get_or_insert(error);
            }
        }
    }
    match first {
        Some(error) if reached == 0 => Err(error),
        _ => Ok(()),
    }
}

fn failure(trouble: Trouble) -> Failure {
    let failure = Failure::new(trouble.message);
    match trouble.hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Waits until every relay has ended. A failed relay stops no other; the first failure is returned.
async fn all_ended(mut relays: JoinSet<Result<(), (String, Trouble)>>) -> Result<(), Failure> {
    let mut first = Ok(());
    while let Some(ended) = relays.join_next().await {
        let failed = match ended {
            Ok(Ok(())) => continue,
            Ok(Err((name, trouble))) => {
                if first.is_err() || !relays.is_empty() {
                    print::log(&name, &format!("carrying stopped: {trouble}"));
                }
                failure(trouble)
            }
            Err(error) => Failure::new(format!("a relay ended: {error}")),
        };
        if first.is_ok() {
            first = Err(failed);
        }
    }
    first
}
