//! A role that may only create schemas makes objects under the names that trax programs use, or in
//! schemas on another role's search path. No program executes them or connects to an address from
//! them.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::relay::play;
use harness::database::Shared;
use harness::process::{Process, run, trax_binary};
use harness::scheduler::new_name;
use harness::session::{Session, session};
use harness::{PATIENCE, shared_server};
use trax_client::Neighbor;
use trax_client::testkit::Database;

/// A database in which a role has made every object it can, with the traces of their use.
struct Trap {
    database: Database,
    stranger: Session,
    /// Written by the stranger's code if a superuser runs it, even in a transaction that is
    /// read-only or fails.
    proof: PathBuf,
    /// The address of shards in the stranger's tables.
    listener: TcpListener,
}

impl Trap {
    async fn in_database(database: Database, superuser: &Session) -> Self {
        let role = new_name("dev");
        let name = database.name();
        superuser
            .get(&format!(
                "create role {role} login; grant create on database {name} to {role}"
            ))
            .await;
        let stranger = Session::as_role(&database, &role).await;
        let server: &'static Shared = shared_server();
        let proof = server.socket_dir().join(format!("proof_{name}"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("it does not block");
        Trap {
            database,
            stranger,
            proof,
            listener,
        }
    }

    /// Makes a schema with a function `rise`, which writes the proof.
    async fn schema(&self, name: &str) {
        let proof = self.proof.display();
        self.stranger
            .get(&format!(
                "create schema {name};
                 grant usage on schema {name} to public;
                 create function {name}.rise() returns text language plpgsql volatile as $$
                 begin
                     begin
                         copy (select current_user) to '{proof}';
                     exception when insufficient_privilege then null;
                     end;
                     return 'x';
                 end $$;
                 create function {name}.on_write() returns trigger language plpgsql as
                 $$ begin perform {name}.rise(); return new; end $$"
            ))
            .await;
    }

    /// Fails if the stranger's code ran or a program connected to its address.
    fn is_untouched(&self, program: &str) {
        assert!(!self.proof.exists(), "{program} ran a stranger's code");
        let came = self.listener.accept();
        assert!(came.is_err(), "{program} connected to a stranger's address");
    }

    fn url(&self) -> String {
        let server = shared_server();
        format!(
            "host={} port={} user=postgres password=s3cret dbname={} sslmode=disable",
            server.socket_dir().display(),
            server.port(),
            self.database.name()
        )
    }

    /// Runs a command, which may fail, and checks the trap.
    fn trax(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(trax_binary());
        command
            .args(["--database-url", &self.url()])
            .args(arguments);
        self.run(&mut command, &arguments.join(" "))
    }

    fn run(&self, command: &mut Command, name: &str) -> String {
        let (_, output, errors) = run(command);
        self.is_untouched(name);
        format!("{output}{errors}")
    }

    /// Requests pages as a browser does, including those of a shard.
    async fn pages(&self) {
        let mut command = Command::new(trax_binary());
        command.args([
            "--database-url",
            &self.url(),
            "web",
            "--listen",
            "127.0.0.1:0",
        ]);
        let web = Process::start(command);
        let said = web.says(" of ", PATIENCE).await;
        let rest = said.split_once("http://").expect("an address").1;
        let at = rest.split('/').next().expect("a host and a port");
        for path in ["/", "/jobs", "/shards/1/", "/groups"] {
            let address = format!("http://{at}{path}");
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--max-time", "60", &address]);
            self.run(&mut curl, path);
        }
    }

    /// Runs every command that reads, some that write, and the pages.
    async fn everything(&self) {
        for command in [
            "status",
            "check",
            "doctor",
            "metrics",
            "audit",
            "workers",
            "tokens",
            "jobs list",
            "jobs show 1",
            "jobs cancel 1",
            "dead list",
            "manifest list",
            "manifest export",
            "group list",
            "group pause g",
            "manifest why m",
            "enqueue t",
            "import pg_cron",
            "worker --all-tasks --exec cat --until-empty",
            "lock n -- true",
            "grant reader nobody_of_that_name",
        ] {
            let words: Vec<&str> = command.split(' ').collect();
            self.trax(&words);
        }
        let worker = [
            "worker",
            "--all-tasks",
            "--exec",
            "cat",
            "--until-empty",
            "--router",
        ];
        let mut at_router = Command::new(trax_binary());
        self.run(at_router.args(worker).arg(self.url()), "worker --router");
        self.pages().await;
    }

    fn relay(&self, from: &str, to: &str) -> String {
        let mut relay = Command::new(trax_binary());
        relay.args(["relay", "--once", "--from", from, "--to", to]);
        self.run(&mut relay, "relay")
    }
}

/// A table with these columns, and a trigger and a rule on it that run code.
fn table(schema: &str, table: &str, columns: &str) -> String {
    format!(
        "create table {schema}.{table} ({columns});
         grant all on {schema}.{table} to public;
         create trigger t before insert or update or delete on {schema}.{table}
             for each row execute function {schema}.on_write();
         create rule r as on insert to {schema}.{table} do also select {schema}.rise()"
    )
}

#[tokio::test]
async fn no_program_uses_a_schema_that_a_stranger_made_under_a_name_of_trax() {
    let (database, superuser) = session().await;
    let trap = Trap::in_database(database, &superuser).await;
    for neighbor in Neighbor::ALL {
        if neighbor != Neighbor::Trax {
            trap.schema(neighbor.schema()).await;
        }
    }
    let port = trap.listener.local_addr().expect("it is bound").port();
    let stranger = &trap.stranger;
    stranger
        .get(&format!(
            "create function trax_router.shards() returns table (number integer, address text, closed text)
             language plpgsql as $$ begin
                 perform trax_router.rise();
                 return query select 1, 'host=127.0.0.1 port={port} dbname=x sslmode=disable', null::text;
             end $$;
             create function trax_router.shards_of_settings(text) returns setof integer
             language plpgsql as $$ begin perform trax_router.rise(); return next 1; end $$;
             create procedure trax_router.move_group(text, integer, inout bigint, boolean)
             language plpgsql as $$ begin perform trax_router.rise(); end $$"
        ))
        .await;
    // A type of the stranger, with a cast that runs code, in a view that runs code.
    stranger
        .get(
            "create type trax_relay.mine as (x integer);
             create function trax_relay.told(trax_relay.mine) returns text
             language sql as 'select trax_relay.rise()';
             create cast (trax_relay.mine as text) with function trax_relay.told(trax_relay.mine) as implicit;
             create view trax_relay.source as select row(1)::trax_relay.mine as source, 1::bigint as epoch,
                 now() as since, trax_relay.rise() as name, 0::bigint as waiting,
                 0::float8 as oldest_seconds, 0::bigint as refused, now() as reported_at,
                 0::bigint as held, null::text as trouble;
             grant select on trax_relay.source to public",
        )
        .await;
    let carried = table(
        "trax_relay",
        "carried",
        "key uuid, source uuid, id bigint, job_id bigint",
    );
    let target = table("trax_relay", "target", "target uuid");
    let relay = table("trax_outbox", "relay", "source uuid, name text");
    stranger.get(&format!("{carried}; {target}; {relay}")).await;
    stranger
        .get(
            "create function trax_outbox.look(uuid, uuid[], bigint, bigint[], text[], bigint[])
             returns table (id bigint, key uuid, document text)
             language plpgsql as $$ begin perform trax_outbox.rise(); end $$;
             create view cron.job as select 1::bigint as jobid, '* * * * *'::text as schedule,
                 'select 1'::text as command, 'localhost'::text as nodename, 1 as nodeport,
                 'plain'::text as database, cron.rise() as username, true as active, 'x'::text as jobname;
             grant select on cron.job to public",
        )
        .await;
    trap.everything().await;
    let doctor = trap.trax(&["doctor"]);
    for schema in ["trax_router", "trax_relay", "cron"] {
        assert!(doctor.contains(&format!("\"{schema}\"")), "{doctor}");
        let drop_it = format!("drop schema {schema} cascade");
        assert!(doctor.contains(&drop_it), "{doctor}");
    }
    // Other commands still work despite the stranger's objects.
    let (code, _, errors) =
        run(Command::new(trax_binary()).args(["--database-url", &trap.url(), "jobs", "list"]));
    assert_eq!(code, Some(0), "{errors}");
    let said = trap.relay(&trap.url(), &trap.url());
    assert!(
        said.contains("an object in the schema \"trax_relay\""),
        "{said}"
    );
    superuser.get("drop schema trax_relay cascade").await;
    play(shared_server(), &trap.database, "relay.sql");
    let said = trap.relay(&trap.url(), &trap.url());
    assert!(
        said.contains("an object in the schema \"trax_outbox\""),
        "{said}"
    );
}

#[tokio::test]
async fn no_program_calls_functions_of_a_schema_trax_that_is_not_the_extensions() {
    let (_, genuine) = session().await;
    let server = shared_server();
    let name = new_name("plain");
    harness::database::drop_after_test(server, &name);
    let database = server.plain_database(&name).await;
    let database = database.expect("a database is made");
    let superuser = Session::of(&database).await;
    let trap = Trap::in_database(database, &superuser).await;
    trap.schema("trax").await;
    // All functions of the contract whose types are built in.
    let functions = genuine
        .get(
            "select string_agg(format(
                 'create %s trax.%I(%s) %s language plpgsql as $f$ begin perform trax.rise(); end $f$',
                 case p.prokind when 'p' then 'procedure' else 'function' end, p.proname,
                 pg_get_function_arguments(p.oid),
                 case when p.prokind = 'f' then 'returns ' || pg_get_function_result(p.oid) end), ';')
             from pg_proc p
             where p.pronamespace = 'trax'::regnamespace
                 and p.prokind in ('f', 'p')
                 and pg_get_function_arguments(p.oid) !~ 'trax[.]'
                 and coalesce(pg_get_function_result(p.oid), '') !~ 'trax[.]|trigger|handler'
                 -- Its argument and its result have one name, which PL/pgSQL does not allow.
                 and p.proname <> 'record_step'",
        )
        .await;
    trap.stranger.get(&functions).await;
    trap.everything().await;
    let said = trap.trax(&["status"]);
    assert!(
        said.contains("the schema \"trax\" is not that of the extension trax"),
        "{said}"
    );
    let mut plain = Command::new(trax_binary());
    plain.args([
        "--database-url",
        &trap.url(),
        "worker",
        "--all-tasks",
        "--exec",
        "cat",
    ]);
    let said = trap.run(&mut plain, "worker");
    assert!(said.contains("drop schema trax cascade"), "{said}");
}

/// A schema that the superuser's search path names first: an operator for every two types that the
/// server would otherwise compare by a polymorphic operator or by a cast.
#[tokio::test]
async fn no_program_finds_operators_that_a_stranger_made_in_the_search_path() {
    let (database, superuser) = session().await;
    let trap = Trap::in_database(database, &superuser).await;
    trap.schema("postgres").await;
    let operators = trap
        .stranger
        .get(
            "with types (t) as (
                 select unnest('{text,name,int2,int4,int8,numeric,float8,bool,timestamptz,interval,jsonb,
                     uuid,oid,regrole,text[],int4[],int8[],anyelement}'::text[])
             )
             select string_agg(format(
                 'create function postgres.%1$I(%2$s, %3$s) returns %5$s language plpgsql as
                     $f$ begin perform postgres.rise(); return null; end $f$;
                  create operator postgres.%4$s (leftarg = %2$s, rightarg = %3$s, function = postgres.%1$I)',
                 md5(o.name || l.t || ',' || r.t), l.t, r.t, o.name, o.result), ';')
             from types l
             cross join types r
             cross join (values ('=', 'bool'), ('<>', 'bool'), ('<', 'bool'), ('>=', 'bool'),
                 ('||', 'text'), ('-', 'interval'), ('*', 'float8'), ('/', 'float8')) o (name, result)
             where not exists (
                 select
                 from pg_operator p
                 where p.oprname = o.name
                     and p.oprleft = l.t::regtype
                     and p.oprright = r.t::regtype
             )",
        )
        .await;
    trap.stranger.get(&operators).await;
    superuser
        .get("select trax.schedule('m', 't', cron => '* * * * *'), trax.enqueue('t', group_name => 'g')")
        .await;
    trap.everything().await;
}

/// Returns the schemas of tables, functions and procedures in a SQL text.
fn schemas(text: &str) -> Vec<&str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let named = words.windows(2).filter_map(|pair| {
        let before = pair[0].trim_start_matches(['"', '(']);
        let is_sql = ["from", "join", "into", "update", "call", "lateral"].contains(&before);
        let (schema, name) = pair[1].split_once('.')?;
        let plain = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        };
        let begins = name.chars().next().is_some_and(|c| c.is_ascii_lowercase());
        // A single letter is an alias.
        (is_sql && plain(schema) && schema.len() > 1 && begins).then_some(schema)
    });
    named.collect()
}

#[test]
fn the_list_has_every_schema_that_programs_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trax_client");
    let known: Vec<&str> = Neighbor::ALL.iter().map(|n| n.schema()).collect();
    let mut folders = vec![root.clone()];
    let mut seen = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("it is there") {
            let path = entry.expect("it can be read").path();
            let name = path.file_name().and_then(|name| name.to_str());
            // The benchmark uses its own databases, and tests create such objects themselves.
            let left_out = [
                "bench",
                "tests",
                "testkit",
                "demo",
                "examples",
                "node_modules",
            ];
            if path.is_dir() && name.is_some_and(|name| !left_out.contains(&name)) {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|kind| kind == "rs" || kind == "sql")
            {
                let text = std::fs::read_to_string(&path).expect("it is text");
                for schema in schemas(&text) {
                    let is_known = schema == "pg_catalog" || known.contains(&schema);
                    assert!(is_known, "{}: {schema}", path.display());
                    seen.insert(schema.to_owned());
                }
            }
        }
    }
    for schema in known {
        assert!(seen.contains(schema), "nothing names {schema}");
    }
}
