//! The database of a test: a clone of one with the extension, dropped when the test has passed.
//!
//! The *template* of a server is a database with the extension in which no scheduler runs, because
//! it is marked as a template. A clone takes a third of the time of `create extension`. Databases
//! are created and dropped by one thread, which keeps its connection: a session for each takes as
//! much of the processor as a fifth of a clone.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::panic;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, Once, OnceLock, PoisonError};
use tokio::sync::oneshot;
use tokio_postgres::{Client, Config, NoTls};
use trax_client::testkit::{Database, Error, Server};

const TEMPLATE: &str = "trax_template";

/// A server on which many tests have databases.
pub struct Shared(pub Server);

impl Deref for Shared {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl Shared {
    /// Returns a new, empty database, which is dropped after the test.
    pub async fn plain_database(&self, name: &str) -> Result<Database, Error> {
        drop_after_test(self, name);
        self.0.plain_database(name).await
    }

    /// Returns a new database with the extension, which is dropped after the test.
    pub async fn database(&self, name: &str) -> Result<Database, Error> {
        clone(self, name).await
    }

    /// Returns a new database in which `create extension` has just run: no cycle has run yet, and
    /// the database is not adopted.
    pub async fn fresh_database(&self, name: &str) -> Result<Database, Error> {
        drop_after_test(self, name);
        self.0.database(name).await
    }
}

/// Returns a new database with the extension, which is dropped after the calling test.
pub async fn clone(server: &Server, name: &str) -> Result<Database, Error> {
    make_template(server).await?;
    drop_after_test(server, name);
    // The log of a copy page by page would take twice the time of a copy of the files.
    let create = format!("create database \"{name}\" template {TEMPLATE} strategy file_copy");
    administrate(server.config("postgres"), create).await?;
    run(server, name, INSTALLED_HERE).await?;
    Ok(server.existing(name))
}

/// Makes a clone the same as a new database by one statement; `trax.adopt()` needs several,
/// and leaves a record.
const INSTALLED_HERE: &str = "
    with here as (
        select oid from pg_database where datname = current_database()
    ), instance as (
        update trax.instance i set database_oid = here.oid, adopted_at = clock_timestamp() from here
    )
    update trax.adoption a set database_oid = here.oid from here";

/// Makes the template of a server, once.
async fn make_template(server: &Server) -> Result<(), Error> {
    static MADE: tokio::sync::Mutex<Vec<PathBuf>> = tokio::sync::Mutex::const_new(Vec::new());
    let mut made = MADE.lock().await;
    if !made.iter().any(|of| of == server.socket_dir()) {
        let create = format!("create database {TEMPLATE} is_template true");
        run(server, "postgres", &create).await?;
        run(server, TEMPLATE, "create extension trax").await?;
        // Stores the zone data, which the first cycle would otherwise do.
        let adopt = "select trax.adopt(); truncate trax.audit restart identity";
        run(server, TEMPLATE, adopt).await?;
        made.push(server.socket_dir().to_owned());
    }
    Ok(())
}

async fn run(server: &Server, database: &str, sql: &str) -> Result<(), Error> {
    let client = server.existing(database).connect().await?;
    Ok(client.batch_execute(sql).await?)
}

/// A statement for the thread that creates and drops databases.
struct Order {
    server: Config,
    sql: String,
    /// Gets the result.
    done: oneshot::Sender<std::result::Result<(), tokio_postgres::Error>>,
}

/// Runs a statement in the thread that creates and drops databases.
async fn administrate(server: Config, sql: String) -> Result<(), Error> {
    let (done, result) = oneshot::channel();
    orders().send(Order { server, sql, done }).ok();
    Ok(result
        .await
        .expect("the thread lives as long as the process")?)
}

/// The server's connection settings, and the name of a database to drop.
type Leftover = (Config, String);

/// The databases of the test in this thread; they are dropped when the thread ends.
struct OfThisTest(RefCell<Vec<Leftover>>);

thread_local! {
    static OF_THIS_TEST: OfThisTest = const { OfThisTest(RefCell::new(Vec::new())) };
    /// Whether this thread has panicked; its databases are then kept for inspection.
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

impl Drop for OfThisTest {
    fn drop(&mut self) {
        if PANICKED.try_with(Cell::get) == Ok(false) {
            for (server, name) in self.0.take() {
                let sql = format!("drop database if exists \"{name}\" with (force)");
                let (done, _) = oneshot::channel();
                // A process that ends drops nothing any more.
                orders().send(Order { server, sql, done }).ok();
            }
        }
    }
}

/// Drops a database after the test in this thread has passed.
pub fn drop_after_test(server: &Server, name: &str) {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICKED.try_with(|panicked| panicked.set(true)).ok();
            report(info);
        }));
    });
    let leftover = (server.config("postgres"), name.to_owned());
    OF_THIS_TEST.with(|mine| mine.0.borrow_mut().push(leftover));
}

/// Returns the channel to the thread that creates and drops databases.
fn orders() -> Sender<Order> {
    static ORDERS: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (send, orders) = channel();
        std::thread::spawn(move || carry_out(&orders));
        Mutex::new(send)
    });
    let orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
    orders.clone()
}

/// Carries out orders for as long as the process lives, one after the other.
fn carry_out(orders: &Receiver<Order>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    let mut connected: Option<(Config, Client)> = None;
    for Order { server, sql, done } in orders {
        runtime.block_on(async {
            let kept = connected.take_if(|(to, client)| *to != server || client.is_closed());
            drop(kept);
            if connected.is_none() {
                match server.connect(NoTls).await {
                    Ok((client, connection)) => {
                        tokio::spawn(connection);
                        connected = Some((server, client));
                    }
                    // A server that has ended took its databases with it.
                    Err(error) => return done.send(Err(error)).unwrap_or_default(),
                }
            }
            let Some((_, client)) = &connected else {
                return;
            };
            let result = client.batch_execute(&sql).await;
            if let Err(Err(error)) = done.send(result) {
                eprintln!("nobody waits for {sql}: {error:?}");
            }
        });
    }
}
