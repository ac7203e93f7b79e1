//! `pg_upgrade` with trax, of the current version and of 0.1.0.
//!
//! `TRAX_OLD_PG_CONFIG` names the old PostgreSQL, which also has the extension: `scripts/versions`
//! names the 15 of Debian's release.

use super::dump_into;
use harness::process::{Scratch, run, run_quietly};
use harness::session::Session;
use harness::shared_server;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// A PostgreSQL and its data directory.
struct Cluster {
    bin: PathBuf,
    data: PathBuf,
    folder: PathBuf,
}

impl Cluster {
    fn make(pg_config: &Path, folder: &Path, name: &str) -> Self {
        let bin = run_quietly(Command::new(pg_config).arg("--bindir"));
        let cluster = Cluster {
            bin: bin.trim().into(),
            data: folder.join(name),
            folder: folder.to_owned(),
        };
        let mut initdb = cluster.command("initdb");
        initdb.args([
            "-A",
            "trust",
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--no-locale",
            "--no-sync",
        ]);
        if cluster.major() >= 18 {
            initdb.arg("--no-data-checksums");
        }
        let (code, _, errors) = run(initdb.arg("-D").arg(&cluster.data));
        assert_eq!(code, Some(0), "{errors}");
        let path = cluster.data.join("postgresql.conf");
        let old = std::fs::read_to_string(&path).expect("initdb writes it");
        let settings = format!(
            "{old}\nlisten_addresses = ''\nunix_socket_directories = '{}'\nshared_preload_libraries = 'trax'\nfsync = off\n",
            folder.display()
        );
        std::fs::write(&path, settings).expect("it can be written");
        cluster
    }

    fn major(&self) -> u32 {
        let version = run_quietly(self.command("postgres").arg("--version"));
        let major = version
            .split(|c: char| !c.is_ascii_digit())
            .find(|part| !part.is_empty());
        major
            .and_then(|major| major.parse().ok())
            .expect("a version begins with its major")
    }

    /// A program of this PostgreSQL, under the servers' account.
    fn command(&self, program: &str) -> Command {
        let path = self.bin.join(program);
        let mut command = shared_server().command(path.to_str().expect("a path is text"));
        command.env("PGHOST", &self.folder).env("PGPORT", "5432");
        command.current_dir(&self.folder);
        command
    }

    fn pg_ctl(&self, what: &str) {
        let log = self.folder.join("log");
        let mut pg_ctl = self.command("pg_ctl");
        pg_ctl.args(["-s", "-w", "-m", "fast", "-l"]).arg(&log);
        let (code, _, errors) = run(pg_ctl.arg("-D").arg(&self.data).arg(what));
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        assert_eq!(code, Some(0), "{errors}\n{}", said());
    }

    async fn session(&self, database: &str) -> Session {
        let mut config = tokio_postgres::Config::new();
        config
            .host_path(&self.folder)
            .user("postgres")
            .dbname(database);
        Session::with(config).await
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.data.join("postmaster.pid").exists() {
            let mut stop = self.command("pg_ctl");
            stop.args(["-s", "-m", "immediate", "stop", "-D"])
                .arg(&self.data);
            run(&mut stop);
        }
    }
}

const JOBS: &str = "select count(*), (select count(*) from trax.run), (select count(*) from trax.manifest) from trax.job";

#[tokio::test]
async fn an_upgraded_server_has_all_jobs_and_works_through_them() {
    let Some(older) = std::env::var_os("TRAX_OLD_PG_CONFIG") else {
        eprintln!("TRAX_OLD_PG_CONFIG names no older PostgreSQL: pg_upgrade is not tried");
        return;
    };
    let newer = std::env::var_os("PG_CONFIG").expect("it is there where the other is");
    let folder = Scratch::new("pg-upgrade");
    let old = Cluster::make(Path::new(&older), folder.path(), "old");
    let new = Cluster::make(Path::new(&newer), folder.path(), "new");
    let (from, to) = (old.major(), new.major());
    assert!(from <= to, "pg_upgrade does not lead from {from} to {to}");
    old.pg_ctl("start");
    let s = old.session("postgres").await;
    s.get("create database old").await;
    s.get("create database today").await;
    let dump = folder.path().join("dump");
    std::fs::write(&dump, dump_into("0.1.0")).expect("it can be written");
    let mut psql = old.command("psql");
    psql.args([
        "-qX",
        "-v",
        "ON_ERROR_STOP=1",
        "-o",
        "/dev/null",
        "-d",
        "old",
    ]);
    run_quietly(psql.arg("-f").arg(&dump));
    let s = old.session("today").await;
    s.get(
        "create extension trax; select trax.pause();
        select trax.schedule('m', 'a', every => '1 h');
        select trax.enqueue_many('a', array['1', '2', '3']::jsonb[]);
        select trax.complete(job_id, token) from trax.claim_next(max_jobs => 2)",
    )
    .await;
    let today = s.get(JOBS).await;
    let before = old.session("old").await.get(JOBS).await;
    drop(s);
    old.pg_ctl("stop");

    let begin = Instant::now();
    let mut upgrade = new.command("pg_upgrade");
    upgrade
        .args(["-U", "postgres", "-b"])
        .arg(&old.bin)
        .arg("-B")
        .arg(&new.bin);
    upgrade.arg("-d").arg(&old.data).arg("-D").arg(&new.data);
    let (code, output, errors) = run(upgrade.arg("-s").arg(folder.path()));
    let logs = run(Command::new("sh").arg("-c").arg(format!(
        "grep -h -A6 error: {}/pg_upgrade_output.d/*/log/*dump*.log",
        new.data.display()
    )));
    assert_eq!(code, Some(0), "{output}\n{errors}\n{}", logs.1);
    println!("pg_upgrade of {from} to {to} took {:?}", begin.elapsed());

    new.pg_ctl("start");
    let s = new.session("old").await;
    let refusal = s.refusal("select * from trax.claim_next()").await;
    assert_eq!(
        refusal.hint, "Type: alter extension trax update",
        "{refusal}"
    );
    // Paused before its scheduler notices that it may run.
    s.get("begin; alter extension trax update; select trax.adopt(); select trax.pause(); commit")
        .await;
    assert_eq!(s.get(JOBS).await, before);
    s.assert_healthy().await;
    assert!(!s.claim("").await.is_empty());
    let s = new.session("today").await;
    assert_eq!(
        s.refusal("select * from trax.claim_next()").await.code,
        "55000",
        "a copy"
    );
    s.get("select trax.adopt()").await;
    assert_eq!(s.get(JOBS).await, today);
    s.assert_healthy().await;
    assert_eq!(s.claim("").await.len(), 1);
    new.pg_ctl("stop");
}
