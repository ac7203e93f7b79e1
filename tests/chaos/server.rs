//! Faults of the whole server: the standby takes over, or a dump is restored over the database.

use crate::fact::Crash;
use crate::strike::{Campaigner, Result, text_of};
use crate::target::children;
use crate::testbed::{PATIENCE, connect, now};
use harness::process::{is_alive, send_signal};
use std::time::{Duration, Instant};
use tokio::task::block_in_place;
use tokio_postgres::{Client, SimpleQueryMessage};

impl Campaigner<'_> {
    /// Crashes the primary; after a while the standby takes over, and a new standby is made.
    pub(crate) async fn promote(&mut self, hold: Duration) -> Result<String> {
        let standby = self.testbed.standby.as_ref().ok_or("no standby")?;
        let on_standby = connect(&standby.config("postgres"))
            .await
            .map_err(text_of)?;
        let client = self.testbed.admin().await;
        // Commits acknowledged between these two points may be lost too.
        let before = now();
        let until: String = client
            .query_one("select pg_current_wal_flush_lsn()::text", &[])
            .await
            .map_err(text_of)?
            .get(0);
        let caught_up = format!("select pg_last_wal_receive_lsn() >= '{until}'::pg_lsn");
        let begun = Instant::now();
        while !is_true(&on_standby, &caught_up).await? {
            if begun.elapsed() > PATIENCE {
                return Err("the standby does not catch up".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Writes after the standby's receiver stops are lost, unless commits wait for the standby.
        let receiver = "select pid from pg_stat_wal_receiver";
        let receiver = on_standby.query_opt(receiver, &[]).await.map_err(text_of)?;
        let receiver: Option<i32> = receiver.map(|row| row.get(0));
        if let Some(pid) = receiver {
            send_signal("STOP", pid);
        }
        tokio::time::sleep(hold).await;
        let children = children(self.testbed.primary.pid());
        block_in_place(|| self.testbed.primary.kill()).map_err(text_of)?;
        // No old backend may commit after this point.
        for pid in children {
            if is_alive(pid) {
                send_signal("KILL", pid);
            }
        }
        let after = now();
        if let Some(pid) = receiver
            && is_alive(pid)
        {
            send_signal("CONT", pid);
        }
        self.damage.crashes.push(Crash::at(after));
        let promoted = on_standby
            .query_one("select pg_promote(true, 60)", &[])
            .await;
        // On a busy machine a client notes an answer of the old primary after its end. None has
        // reached the new primary yet.
        if !self.testbed.synchronous {
            self.damage.losses.push((before, now()));
        }
        if !promoted.map_err(text_of)?.get::<_, bool>(0) {
            return Err("the standby was not promoted".to_owned());
        }
        self.testbed.take_over();
        let standby = block_in_place(|| self.testbed.primary.standby()).map_err(text_of)?;
        self.testbed.standby = Some(standby);
        Ok(format!("{} ms were in danger", (after - before) / 1000))
    }

    /// Dumps the database and restores it over itself while clients, but not the scheduler, are
    /// locked out.
    pub(crate) async fn restore(&mut self) -> Result<()> {
        let client = self.testbed.admin().await;
        let before = now();
        // Set before the sessions end, so that clients cannot reconnect.
        let limit = "alter database chaos connection limit 0";
        client.batch_execute(limit).await.map_err(text_of)?;
        let shut = "select pg_terminate_backend(pid, 5000) from pg_stat_activity
            where datname = 'chaos' and backend_type = 'client backend' and pid <> pg_backend_pid()";
        client.batch_execute(shut).await.map_err(text_of)?;
        let done = self.dump_and_restore();
        let open = "alter database chaos connection limit -1";
        client.batch_execute(open).await.map_err(text_of)?;
        done?;
        let adopt = "select trax.adopt()";
        client.batch_execute(adopt).await.map_err(text_of)?;
        self.damage.losses.push((before, now()));
        Ok(())
    }

    fn dump_and_restore(&self) -> Result<()> {
        let server = &self.testbed.primary;
        let file = server.socket_dir().join("dump");
        let mut dump = server.command("pg_dump");
        dump.args(["--format=custom", "--dbname=chaos", "--file"]);
        let mut restore = server.command("pg_restore");
        restore.args(["--clean", "--if-exists", "--single-transaction"]);
        restore.arg("--dbname=chaos");
        // An open prepared transaction would otherwise block the restore for ever.
        restore.env("PGOPTIONS", "-c lock_timeout=20s");
        for command in [dump.arg(&file), restore.arg(&file)] {
            let output = block_in_place(|| command.output()).map_err(text_of)?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
        }
        Ok(())
    }
}

async fn is_true(client: &Client, sql: &str) -> Result<bool> {
    let messages = client.simple_query(sql).await.map_err(text_of)?;
    let is_true = |message: &SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("t"));
    Ok(messages.iter().any(is_true))
}
