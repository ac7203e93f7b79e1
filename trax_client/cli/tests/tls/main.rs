//! TLS against a real server, with certificates made by the test: trusted connections, and the
//! errors of the others.

mod matrix;

use std::error::Error as StdError;
use std::process::{Command, Output};
use std::time::Duration;

use trax_client::testkit::Server;
use trax_client::{Address, Client, Context, Error, NewJob, TokenGuard, TokenRequest, Worker};

type Result<T = ()> = std::result::Result<T, Box<dyn StdError>>;

/// Run by the server's own account in its data directory, so that it can read its own files.
const CERTIFICATES: &str = "
new='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
for ca in ca other; do
    openssl req -x509 $new -days 2 -subj /CN=$ca -keyout $ca.key -out $ca.crt
done
sign() {
    openssl req $new -subj /CN=$2 -keyout $1.key -out $1.csr
    echo subjectAltName=DNS:$2 > $1.ext
    openssl x509 -req -in $1.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile $1.ext -out $1.crt
}
sign server localhost && sign client postgres
# Known by its common name alone, of version 3 and of version 1; signed by itself, as a CA and for another name.
bare() {
    openssl req $new -subj /CN=localhost -keyout $1.key -out $1.csr
    openssl x509 -req -in $1.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 $2 $3 -out $1.crt
}
echo basicConstraints=CA:FALSE > bare.ext
bare common -extfile bare.ext && bare version1
openssl req -x509 $new -days 2 -subj /CN=self -addext subjectAltName=DNS:localhost -keyout self.key -out self.crt
# Lists of the CA: nothing revoked, server.crt revoked, and one whose time is over; of the other CA, nothing.
touch index.txt && echo 01 > crlnumber
printf '[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\ncrlnumber=crlnumber\ndefault_md=sha256\ndefault_crl_days=2\n' > ca.cnf
printf 'crl_extensions=e\n[e]\nauthorityKeyIdentifier=keyid\n' >> ca.cnf
list() {
    openssl ca -config ca.cnf -keyfile $1.key -cert $1.crt $3 $4 $5 $6 -gencrl -out $2.crl
}
# The first is an hour older than the one that revokes: of two lists the latest counts.
list ca none -crl_lastupdate $(date -u -d '1 hour ago' +%Y%m%d%H%M%SZ) && list other foreign
list ca late -crl_lastupdate 20200101000000Z -crl_nextupdate 20200102000000Z
openssl ca -config ca.cnf -keyfile ca.key -cert ca.crt -revoke server.crt && list ca revoked
cp client.key open.key && chmod 644 open.key
openssl pkey -in client.key -aes128 -passout pass:x -out locked.key && chmod 600 locked.key
# Where libpq looks for itself: homes, and a directory of lists by the hash of their CA.
own() {
    mkdir -p $1/.postgresql && cp -p $2 $1/.postgresql/$3
}
own trusting ca.crt root.crt && own other other.crt root.crt
own revoking ca.crt root.crt && own revoking revoked.crl root.crl
own listing ca.crt root.crt && own listing none.crl root.crl
own known client.crt postgresql.crt && own known client.key postgresql.key
own open client.crt postgresql.crt && own open open.key postgresql.key
mkdir lists && cp revoked.crl lists/$(openssl crl -in revoked.crl -noout -hash).r0";

/// A server that accepts only TLS over the network, with a certificate for localhost.
struct Site {
    server: Server,
}

impl Site {
    /// Returns `None`, with a message, if the server was built without SSL.
    async fn make(access: &str) -> Result<Option<Self>> {
        let mut server = Server::options().not_preloaded().fast().tcp().start()?;
        let built = server.command("pg_config").arg("--configure").output()?;
        let built = String::from_utf8(built.stdout)?;
        if !["--with-openssl", "--with-ssl"]
            .iter()
            .any(|with| built.contains(with))
        {
            eprintln!("skipped: this PostgreSQL was built without SSL");
            return Ok(None);
        }
        let database = server.database("tls").await?;
        let script = CERTIFICATES.replace('\'', "''");
        let make =
            format!("copy (select 1) to program 'exec 2>tls.log; cat > tls.in; set -e; {script}'");
        database.connect().await?.batch_execute(&make).await?;
        server.append_settings("ssl = 'on'\nssl_ca_file = 'ca.crt'\n")?;
        let rules = format!("local all all trust\n{access}\n");
        std::fs::write(server.data_dir().join("pg_hba.conf"), rules)?;
        server.restart()?;
        Ok(Some(Site { server }))
    }

    fn file(&self, name: &str) -> String {
        self.server.data_dir().join(name).display().to_string()
    }

    fn text(&self, host: &str, more: &str) -> String {
        let port = self.server.port();
        format!("host={host} port={port} user=postgres dbname=tls {more}")
    }

    /// Returns whether the connection is encrypted, or the error.
    async fn encrypted(&self, host: &str, more: &str) -> std::result::Result<bool, Error> {
        let address: Address = self.text(host, more).parse()?;
        let sql = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
        Ok(address.connect().await?.query_one(sql, &[]).await?.get(0))
    }

    #[track_caller]
    fn says(outcome: std::result::Result<bool, Error>, part: &str) {
        let said = match &outcome {
            Err(error @ Error::Tls(_)) => error.to_string(),
            other => format!("{other:?}"),
        };
        assert!(said.starts_with("TLS: ") && said.contains(part), "{said}");
    }
}

const EITHER: &str = "host all all 127.0.0.1/32 trust";
const ONLY_TLS: &str = "hostssl all all 127.0.0.1/32 trust";

#[tokio::test]
async fn a_wrong_ca_and_a_wrong_name_are_refused_and_the_right_ones_work() -> Result {
    let Some(site) = Site::make(EITHER).await? else {
        return Ok(());
    };
    let right = format!("sslrootcert={}", site.file("ca.crt"));
    let wrong = format!("sslrootcert={}", site.file("other.crt"));
    let full = format!("sslmode=verify-full {right}");
    assert!(site.encrypted("localhost", &full).await?);
    let name = site.encrypted("127.0.0.1", &full).await;
    Site::says(name, "not for \"127.0.0.1\" but for \"localhost\"");
    let ca = format!("sslmode=verify-ca {right}");
    assert!(site.encrypted("127.0.0.1", &ca).await?);
    // As in libpq, a CA that is given is always used.
    for mode in ["require", "verify-ca", "verify-full"] {
        let foreign = site
            .encrypted("localhost", &format!("sslmode={mode} {wrong}"))
            .await;
        Site::says(foreign, "not signed by a CA of sslrootcert");
    }
    Ok(())
}

#[tokio::test]
async fn what_is_not_verified_is_encrypted_all_the_same() -> Result {
    let Some(site) = Site::make(EITHER).await? else {
        return Ok(());
    };
    for (mode, encrypted) in [("require", true), ("prefer", true), ("disable", false)] {
        let mode = format!("sslmode={mode}");
        assert_eq!(
            site.encrypted("127.0.0.1", &mode).await?,
            encrypted,
            "{mode}"
        );
    }
    assert!(site.encrypted("127.0.0.1", "").await?);
    Ok(())
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() -> Result {
    let Some(site) = Site::make(EITHER).await? else {
        return Ok(());
    };
    let cases = [
        (
            "sslmode=verify-full sslrootcert=/no/such.pem",
            "sslrootcert /no/such.pem",
        ),
        (
            "sslmode=require sslrootcert=system",
            "use sslmode=verify-full",
        ),
        (
            "sslmode=require sslcert=/no/such.pem sslkey=/no/key.pem",
            "sslcert /no/such.pem",
        ),
    ];
    for (more, part) in cases {
        Site::says(site.encrypted("localhost", more).await, part);
    }
    let empty = format!("sslmode=verify-ca sslrootcert={}", site.file("PG_VERSION"));
    Site::says(site.encrypted("localhost", &empty).await, "no certificate");
    Ok(())
}

#[tokio::test]
async fn a_client_shows_its_certificate() -> Result {
    let Some(site) = Site::make("hostssl all all 127.0.0.1/32 cert").await? else {
        return Ok(());
    };
    let own = format!(
        "sslmode=require sslcert={} sslkey={}",
        site.file("client.crt"),
        site.file("client.key")
    );
    assert!(site.encrypted("localhost", &own).await?);
    let without = site.encrypted("localhost", "sslmode=require").await;
    assert!(matches!(without, Err(Error::Database(_))), "{without:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_guard_and_command_use_tls() -> Result {
    let Some(site) = Site::make(ONLY_TLS).await? else {
        return Ok(());
    };
    let text = format!("sslmode=verify-full sslrootcert={}", site.file("ca.crt"));
    let text = site.text("localhost", &text);
    let address: Address = text.parse()?;
    let db = address.connect().await?;
    let client = Client::new(&db);
    client.enqueue(&NewJob::new("slow", ())).await?;
    let worker = Worker::new(address.clone())
        .without_signals()
        .lease(Duration::from_secs(3))
        .poll_interval(Duration::from_millis(20))
        // Longer than the lease: without heartbeats the job would be cancelled.
        .handle("slow", |(): (), ctx: Context| async move {
            tokio::select! {
                reason = ctx.cancelled() => panic!("{reason:?}"),
                () = tokio::time::sleep(Duration::from_secs(7)) => Ok(()),
            }
        });
    let summary = worker.until_empty().run().await?;
    assert_eq!(summary.completed, 1, "{summary}");
    let request = TokenRequest::new("tls", "test");
    let guard = TokenGuard::try_acquire(address, request).await?;
    assert!(guard.is_some_and(|guard| !guard.is_lost()));

    let (right, plain) = (
        status(&text, "verify-full")?,
        status(&site.text("localhost", ""), "disable")?,
    );
    assert!(right.status.success(), "{right:?}");
    assert!(!plain.status.success(), "{plain:?}");
    Ok(())
}

/// Runs `trax check` on this address, with `mode` in the environment.
fn status(url: &str, mode: &str) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trax"));
    command.args(["check", "--database-url", url]);
    Ok(command.env("PGSSLMODE", mode).output()?)
}

#[tokio::test]
async fn a_server_without_tls_is_refused_and_ends_a_worker_at_its_start() -> Result {
    let server = Server::options().not_preloaded().fast().tcp().start()?;
    server.database("tls").await?;
    let text = server.url("tls");
    let address: Address = format!("{text}?sslmode=require").parse()?;
    let refused = Worker::new(address)
        .without_signals()
        .handle("any", |(): (), _: Context| async move { Ok(()) })
        .run();
    let refused = tokio::time::timeout(Duration::from_secs(90), refused).await?;
    Site::says(refused.map(|_| true), "the server does not support TLS");
    let output = status(&text, "require")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the server does not support TLS"), "{said}");
    let open: Address = format!("{text}?sslmode=prefer").parse()?;
    open.connect().await?;
    Ok(())
}
