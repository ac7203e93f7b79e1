//! The database of the bench: checks whether it can be created, creates it, and always drops it.

use std::time::{Duration, Instant};

use tokio_postgres::Client as Connection;
use tokio_postgres::types::Type;
use trax_client::Address;

use trax_terminal::Failure;
use trax_terminal::address;

/// The prefix of every bench database.
pub(crate) const PREFIX: &str = "trax_bench_";
/// The time limit for creating a database, and for a preloaded server to start its scheduler.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, and the name of the bench's database there.
#[derive(Clone)]
pub(crate) struct BenchServer {
    given: Address,
    name: String,
    preloaded: bool,
}

impl BenchServer {
    /// Checks whether a bench can run; changes nothing.
    pub(crate) async fn find(mut given: Address) -> Result<Self, Failure> {
        if given.get_dbname().is_none() {
            given.dbname("postgres");
        }
        let connection = address::connect(&given).await?.into_client();
        let sql = "select
                current_user::text,
                (select r.rolcreatedb or r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user),
                (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user),
                exists (select from pg_catalog.pg_available_extensions e where e.name = 'trax'),
                pg_catalog.pg_is_in_recovery(),
                exists (
                    select
                    from pg_catalog.pg_settings s
                    where s.name = 'shared_preload_libraries'
                        and s.setting ~ '(^|[,/\" ])trax([,\" ]|$)'
                )";
        let row = connection.query_typed_one(sql, &[]).await?;
        let role: String = row.try_get(0)?;
        let (creates, superuser): (bool, bool) = (row.try_get(1)?, row.try_get(2)?);
        let (available, standby): (bool, bool) = (row.try_get(3)?, row.try_get(4)?);
        if standby {
            return Err(
                Failure::new("this server is a standby: nothing can be written")
                    .hint("use --database-url with the primary"),
            );
        }
        if !creates {
            return Err(
                Failure::new(format!("role \"{role}\" may not create databases")).hint(
                    "the bench makes a database of its own: give --database-url with a superuser",
                ),
            );
        }
        if !available {
            return Err(
                Failure::new("the extension trax is not available on this server").hint(
                    "install it where the server runs: make install PG_CONFIG=/path/to/pg_config",
                ),
            );
        }
        if !superuser {
            return Err(
                Failure::new(format!("role \"{role}\" may not create the extension trax"))
                    .hint("a superuser is required: use --database-url with one"),
            );
        }
        Ok(BenchServer {
            name: format!("{PREFIX}{:08x}", rand::random::<u32>()),
            preloaded: row.try_get(5)?,
            given,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_preloaded(&self) -> bool {
        self.preloaded
    }

    /// Returns a connection to the database of the given address, which is not the bench's.
    pub(crate) async fn outside(&self) -> Result<Connection, Failure> {
        Ok(address::connect(&self.given).await?.into_client())
    }

    pub(crate) fn config(&self) -> Address {
        let mut config = self.given.clone();
        config.dbname(&self.name);
        config.application_name("trax bench");
        config
    }

    /// Makes a new database with the extension; drops the previous one.
    pub(crate) async fn make_database(&self) -> Result<(), Failure> {
        self.drop_database().await?;
        let sql = format!(
            "create database {} template template0 encoding 'UTF8' lc_collate 'C' lc_ctype 'C'",
            self.name
        );
        self.outside().await?.batch_execute(&sql).await?;
        let connection = address::connect(&self.config()).await?;
        connection.batch_execute("create extension trax").await?;
        if self.preloaded {
            self.await_scheduler(&connection).await?;
        }
        Ok(())
    }

    /// Waits for the scheduler, so that its start does not fall into a measurement.
    async fn await_scheduler(&self, connection: &Connection) -> Result<(), Failure> {
        let begun = Instant::now();
        let sql = "select value from trax.status() where item = 'scheduler'";
        loop {
            let value: String = connection.query_typed_one(sql, &[]).await?.try_get(0)?;
            if value == "running" {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::new(format!(
                    "no scheduler started in database {}: {value}",
                    self.name
                ))
                .hint("see trax.enabled, trax.databases and max_worker_processes"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn drop_database(&self) -> Result<(), Failure> {
        let connection = self.outside().await?;
        // After an interrupt during CREATE DATABASE, the server may still be creating the database.
        let sql = "select count(*)
            from pg_catalog.pg_stat_activity
            where state = 'active'
                and query like 'create database ' || $1 || ' %'";
        let being_made = async || -> Result<i64, Failure> {
            let name = (&self.name as _, Type::TEXT);
            Ok(connection.query_typed_one(sql, &[name]).await?.try_get(0)?)
        };
        let begun = Instant::now();
        while being_made().await? > 0 && begun.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let sql = format!("drop database if exists {} with (force)", self.name);
        connection.batch_execute(&sql).await?;
        // Additional databases that a scenario made.
        let sql = "select d.datname::text
            from pg_catalog.pg_database d
            where pg_catalog.starts_with(d.datname, $1 || '_')";
        let name = (&self.name as _, Type::TEXT);
        for row in connection.query_typed(sql, &[name]).await? {
            let beside: String = row.try_get(0)?;
            let sql = format!("drop database if exists {beside} with (force)");
            connection.batch_execute(&sql).await?;
        }
        Ok(())
    }

    /// Returns the databases that are neither the server's own nor of a bench.
    pub(crate) async fn others(&self) -> Result<Vec<String>, Failure> {
        let sql = "select d.datname::text
            from pg_catalog.pg_database d
            where d.datallowconn
                and not d.datistemplate
                and d.datname <> 'postgres'
                and not pg_catalog.starts_with(d.datname, $1)
            order by 1";
        let prefix = (&PREFIX as _, Type::TEXT);
        let rows = self.outside().await?.query_typed(sql, &[prefix]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Returns unused databases left by earlier benches.
    pub(crate) async fn left_over(&self) -> Result<Vec<String>, Failure> {
        let sql = "select d.datname::text
            from pg_catalog.pg_database d
            where d.datname ~ ('^' || $1 || '[0-9a-f]{8}(_[a-z0-9_]+)?$')
                and not exists (
                    select
                    from pg_catalog.pg_stat_activity a
                    where a.datname = d.datname
                        and a.backend_type = 'client backend'
                )
            order by 1";
        let rows = self
            .outside()
            .await?
            .query_typed(sql, &[(&PREFIX, Type::TEXT)])
            .await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}
