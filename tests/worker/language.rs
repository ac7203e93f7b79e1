//! The Python and Node packages with special connections: TLS and a transaction pooler.

use harness::pooler::Pooler;
use harness::process::run;
use harness::scheduler::{connect, execute, value, violations};
use harness::{database, shared_server};
use std::path::{Path, PathBuf};
use std::process::Command;
use trax_client::testkit::{Database, Server};

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the workspace").to_path_buf()
}

/// The program of each package that queues twenty jobs of each of its tasks, and runs them. Each
/// job records two steps.
fn programs() -> [(Command, &'static [&'static str]); 2] {
    let mut build = Command::new(root().join("scripts/node"));
    let (code, output, errors) = run(build.arg("build"));
    assert_eq!(code, Some(0), "{output}{errors}");
    let mut node = Command::new(root().join("scripts/node"));
    node.args(["run", "trax_client/node/dist/test/reach.js"]);
    let mut python = Command::new(root().join("target/languages/trax-python/bin/python3"));
    python.arg(root().join("trax_client/python/tests/reach.py"));
    python.env("PYTHONPATH", root().join("trax_client/python/src"));
    [
        (python, &["python.async", "python.sync"]),
        (node, &["node"]),
    ]
}

/// Runs both programs at an address and checks that their jobs complete.
async fn work_at(url: &str, database: &Database) {
    let client = connect(database).await;
    execute(&client, "delete from trax.run").await;
    for (mut program, tasks) in programs() {
        program.env("DATABASE_URL", url);
        let ended = tokio::task::spawn_blocking(move || run(&mut program)).await;
        let (code, output, errors) = ended.expect("it ran");
        assert_eq!(code, Some(0), "{tasks:?}: {output}{errors}");
        for task in tasks {
            let done = format!(
                "select count(*) from trax.run where task = '{task}' and state = 'completed' and attempt = 1
                    and jsonb_array_length(steps) = 2"
            );
            let done = value::<i64>(&client, &done).await;
            assert_eq!(done, 20, "{task}: {output}{errors}");
        }
    }
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn the_packages_work_behind_a_transaction_pooler() {
    // Fewer connections than either worker has.
    let pooler = Pooler::of(shared_server(), 2).await;
    let database = database().await;
    let (port, name) = (pooler.port(), database.name());
    work_at(
        &format!("postgresql://postgres@127.0.0.1:{port}/{name}"),
        &database,
    )
    .await;
}

/// Makes certificates in the server's directory: a self-signed one for the server, another one, and
/// a list that revokes the server's own.
fn certify(server: &Server) {
    for name in ["server", "other"] {
        let mut make = server.command("/usr/bin/openssl");
        make.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ]);
        make.args(["-nodes", "-days", "2", "-subj", "/CN=localhost"]);
        make.args(["-addext", "subjectAltName=DNS:localhost"]);
        make.arg("-keyout")
            .arg(server.data_dir().join(format!("{name}.key")));
        make.arg("-out")
            .arg(server.data_dir().join(format!("{name}.crt")));
        let (code, output, errors) = run(&mut make);
        assert_eq!(code, Some(0), "{output}{errors}");
    }
    let revoke = "cd \"$1\" && touch index && echo 01 > number
        printf '[ca]\ndefault_ca=ca\n[ca]\ndatabase=index\ncrlnumber=number\ndefault_md=sha256\ndefault_crl_days=2\n' > ca
        ca='/usr/bin/openssl ca -config ca -keyfile server.key -cert server.crt'
        $ca -revoke server.crt && $ca -gencrl -out revoked.crl";
    let mut make = server.command("/bin/sh");
    make.args(["-c", revoke, "sh"]).arg(server.data_dir());
    let (code, output, errors) = run(&mut make);
    assert_eq!(code, Some(0), "{output}{errors}");
}

#[tokio::test]
async fn the_packages_verify_the_certificate_and_the_name_of_the_server() {
    let options = harness::options().not_preloaded().fast();
    let mut server = options.start().expect("a server starts");
    let (_, built, _) = run(server.command("pg_config").arg("--configure"));
    if !built.contains("--with-openssl") && !built.contains("--with-ssl") {
        eprintln!("skipped: this PostgreSQL was built without SSL");
        return;
    }
    let database = server.database("tls").await.expect("a database is made");
    certify(&server);
    let settings = server.append_settings("ssl = 'on'\n");
    settings.expect("settings can be written");
    let rules = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n";
    std::fs::write(server.data_dir().join("pg_hba.conf"), rules).expect("rules can be written");
    server.restart().expect("the server restarts");

    let (port, data) = (server.port(), server.data_dir());
    let file = |name: &str| data.join(name).display().to_string();
    let url = |host: &str, query: &str| format!("postgresql://postgres@{host}:{port}/tls?{query}");
    let full = |root: &str| format!("sslmode=verify-full&sslrootcert={}", file(root));
    let revoked = format!("{}&sslcrl={}", full("server.crt"), file("revoked.crl"));
    work_at(&url("localhost", &full("server.crt")), &database).await;
    // The server requires TLS, which the default mode tries.
    work_at(&url("localhost", ""), &database).await;
    let signed = format!("sslmode=verify-ca&sslrootcert={}", file("server.crt"));
    work_at(&url("127.0.0.1", &signed), &database).await;
    for wrong in [
        url("localhost", &full("other.crt")),
        url("127.0.0.1", &full("server.crt")),
        url("localhost", &revoked),
    ] {
        for (mut program, tasks) in programs() {
            program.env("DATABASE_URL", &wrong);
            let ended = tokio::task::spawn_blocking(move || run(&mut program)).await;
            let (code, output, errors) = ended.expect("it ran");
            assert_ne!(code, Some(0), "{wrong} {tasks:?}: {output}");
            assert!(errors.to_lowercase().contains("cert"), "{wrong}: {errors}");
        }
    }
}
