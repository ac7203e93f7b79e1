//! `trax relay`: carries the rows of outboxes.

use std::process::ExitCode;
use std::time::Duration;

use crate::output::say;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use trax_client::Address;
use trax_terminal::{Failure, address, duration_from, print};

const HELP: &str = "\
--outbox-sql makes an outbox in a database without trax, --target-sql makes in the target what the \
relay keeps there. Both say which rights its role needs.

  trax relay --outbox-sql | psql -v ON_ERROR_STOP=1 --single-transaction postgres://shop/shop
  trax relay --target-sql | psql -v ON_ERROR_STOP=1 --single-transaction postgres://jobs/jobs
  trax relay --from postgres://relay@shop/shop --to postgres://relay@jobs/jobs

Several relays may run for one outbox: one carries, the others wait for its end.";

#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// A database with an outbox; may be repeated
    #[arg(long, value_name = "URL", required_unless_present_any = ["outbox_sql", "target_sql"])]
    from: Vec<String>,
    /// The database with trax; default that of --database-url
    #[arg(long, value_name = "URL")]
    to: Vec<String>,
    /// Write back what became of the jobs, into trax_outbox.result
    #[arg(long)]
    results: bool,
    /// Carry what waits and end
    #[arg(long)]
    once: bool,
    /// Most rows in one transaction
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=10000))]
    batch: u16,
    /// How often to look when no notification comes
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = at_least_10_ms)]
    poll: Duration,
    /// Print the SQL that makes an outbox, and end
    #[arg(long, exclusive = true)]
    outbox_sql: bool,
    /// Print the SQL that makes what a relay keeps in the target, and end
    #[arg(long, exclusive = true)]
    target_sql: bool,
}

fn at_least_10_ms(text: &str) -> Result<Duration, String> {
    duration_from(Duration::from_millis(10), text)
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
    if arguments.to.len() > 1 {
        return Err(Failure::usage("rows are carried to one database")
            .hint("give --to once, and run a relay for each target with an outbox of its own"));
    }
    let target =
        address::from_environment(arguments.to.first().or(url.as_ref()).map(String::as_str))?;
    let sources: Vec<Address> = arguments
        .from
        .iter()
        .map(|from| address::from_environment(Some(from)))
        .collect::<Result<_, _>>()?;
    // As every command: who starts it learns now that the address is wrong. A source that is down
    // holds up no other.
    drop(address::connect(&target).await?);
    let options = trax_relay::Options {
        batch: arguments.batch.into(),
        poll: arguments.poll,
        results: arguments.results,
        once: arguments.once,
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut relays = JoinSet::new();
    for source in sources {
        let (target, options) = (target.clone(), options.clone());
        let name = source.get_dbname().unwrap_or("relay").to_owned();
        relays.spawn(async move {
            let log = |text: &str| print::log(&name, text);
            trax_relay::run(&source, &target, &options, log).await
        });
    }
    let ended = async {
        while let Some(ended) = relays.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(trouble)) => {
                    let failure = Failure::new(trouble.message);
                    return Err(match trouble.hint {
                        Some(hint) => failure.hint(hint),
                        None => failure,
                    });
                }
                Err(error) => return Err(Failure::new(format!("a relay ended: {error}"))),
            }
        }
        Ok(())
    };
    tokio::select! {
        ended = ended => ended?,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(ExitCode::SUCCESS)
}
