//! Compares this library with psql for the same addresses.

use std::collections::HashMap;

use tokio_postgres::Config;
use trax_client::Address;

use super::{Result, Site};

/// Whether the connection succeeded, and if so, whether it was encrypted.
type Outcome = Option<bool>;

const SQL: &str = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";

impl Site {
    /// Sets the certificate that the server presents from now on, and the access rules.
    fn show(&mut self, certificate: &str, access: &str) -> Result {
        let settings =
            format!("ssl_cert_file = '{certificate}.crt'\nssl_key_file = '{certificate}.key'\n");
        self.server.append_settings(&settings)?;
        let rules = format!("local all all trust\n{access}\n");
        std::fs::write(self.server.data_dir().join("pg_hba.conf"), rules)?;
        Ok(self.server.restart()?)
    }

    /// Returns the outcome of psql with these libpq variables.
    fn psql(&self, address: &str, variables: &[(&str, String)]) -> Result<Outcome> {
        let mut command = self.server.command("psql");
        command.args(["-XAt", "-c", SQL, "-d", address]);
        command.env("HOME", "/nonexistent");
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let output = command.output()?;
        Ok(match String::from_utf8(output.stdout)?.trim() {
            "t" => Some(true),
            "f" => Some(false),
            _ => None,
        })
    }

    async fn ours(&self, address: &str, variables: &[(&str, String)]) -> Result<Outcome> {
        let said: HashMap<_, _> = variables.iter().cloned().collect();
        let address: Address = address.parse()?;
        let address = address.or_environment(|name| said.get(name).cloned())?;
        let Ok(client) = address.connect().await else {
            return Ok(None);
        };
        Ok(Some(client.query_one(SQL, &[]).await?.get(0)))
    }
}

const EITHER: &str = "host all all 127.0.0.1/32 trust";
const ONLY_TLS: &str = "hostssl all all 127.0.0.1/32 trust";
const NO_TLS: &str = "hostnossl all all 127.0.0.1/32 trust";
const PASSWORD: &str = "host all all 127.0.0.1/32 scram-sha-256";

/// A server certificate, the access rule, and libpq parameters, in which `@` stands for the
/// directory of the files.
const CASES: [(&str, &str, &[&str]); 7] = [
    (
        "server",
        EITHER,
        &[
            "sslmode=disable",
            "sslmode=allow",
            "sslmode=prefer",
            "sslmode=require",
            "sslmode=verify-ca",
            "sslmode=prefer sslrootcert=@/ca.crt",
            "sslmode=prefer sslrootcert=@/other.crt",
            "sslmode=allow sslrootcert=@/other.crt",
            "sslmode=require sslrootcert=@/other.crt",
            "sslmode=require sslrootcert=@/none.crt",
            "sslmode=verify-ca sslrootcert=@/none.crt",
            "sslmode=verify-full sslrootcert=@/ca.crt",
            "sslmode=verify-full sslrootcert=@/server.crt",
            "sslmode=verify-ca sslrootcert=@/ca.crt sslcrl=@/none.crl",
            "sslmode=verify-ca sslrootcert=@/ca.crt sslcrl=@/revoked.crl",
            "sslmode=verify-ca sslrootcert=@/ca.crt sslcrl=@/foreign.crl",
            "sslmode=verify-ca sslrootcert=@/ca.crt sslcrl=@/late.crl",
            "sslmode=require sslrootcert=@/ca.crt sslcrl=@/revoked.crl",
            "sslmode=require sslcrl=@/revoked.crl",
            "sslmode=verify-ca sslrootcert=@/ca.crt sslcrldir=@/lists",
            "sslmode=verify-ca sslrootcert=@/ca.crt sslcrl=@/none.crl sslcrldir=@/lists",
            "sslmode=require ssl_min_protocol_version=TLSv1.3",
            "sslmode=require ssl_max_protocol_version=TLSv1.2",
            "sslmode=require sslsni=0",
            "sslmode=require sslcert=@/client.crt sslkey=@/client.key",
            "sslmode=require sslcert=@/client.crt sslkey=@/open.key",
            "sslmode=require channel_binding=require",
        ],
    ),
    (
        "server",
        ONLY_TLS,
        &[
            "sslmode=disable",
            "sslmode=allow",
            "sslmode=prefer",
            "sslmode=prefer sslrootcert=@/other.crt",
        ],
    ),
    (
        "server",
        NO_TLS,
        &[
            "sslmode=disable",
            "sslmode=allow",
            "sslmode=prefer",
            "sslmode=require",
        ],
    ),
    (
        "server",
        PASSWORD,
        &[
            "channel_binding=require password=right",
            "channel_binding=prefer password=right",
            "channel_binding=disable password=right",
            "channel_binding=require password=wrong",
            "channel_binding=require password=right sslmode=disable",
        ],
    ),
    (
        "common",
        EITHER,
        &[
            "sslmode=require",
            "sslmode=verify-ca sslrootcert=@/ca.crt",
            "sslmode=verify-full sslrootcert=@/ca.crt",
            "sslmode=verify-full sslrootcert=@/ca.crt hostaddr=127.0.0.1 host=elsewhere",
        ],
    ),
    (
        "self",
        EITHER,
        &[
            "sslmode=require",
            "sslmode=prefer",
            "sslmode=require sslrootcert=@/ca.crt",
            "sslmode=verify-ca sslrootcert=@/self.crt",
            "sslmode=verify-full sslrootcert=@/self.crt",
            "sslmode=verify-full sslrootcert=@/self.crt hostaddr=127.0.0.1 host=elsewhere",
        ],
    ),
    (
        "version1",
        EITHER,
        &[
            "sslmode=require",
            "sslmode=prefer",
            "sslmode=require ssl_max_protocol_version=TLSv1.2",
            "sslmode=verify-ca sslrootcert=@/version1.crt",
            "sslmode=verify-full sslrootcert=@/version1.crt",
        ],
    ),
];

/// Returns libpq's variable for a parameter.
fn variable(parameter: &str) -> Option<&'static str> {
    Some(match parameter {
        "sslmode" => "PGSSLMODE",
        "sslrootcert" => "PGSSLROOTCERT",
        "sslcert" => "PGSSLCERT",
        "sslkey" => "PGSSLKEY",
        "sslcrl" => "PGSSLCRL",
        "sslcrldir" => "PGSSLCRLDIR",
        "sslsni" => "PGSSLSNI",
        "ssl_min_protocol_version" => "PGSSLMINPROTOCOLVERSION",
        "ssl_max_protocol_version" => "PGSSLMAXPROTOCOLVERSION",
        "channel_binding" => "PGCHANNELBINDING",
        _ => return None,
    })
}

#[tokio::test]
async fn addresses_and_variables_mean_what_they_mean_to_psql() -> Result {
    let Some(mut site) = Site::make(EITHER).await? else {
        return Ok(());
    };
    let admin = site.server.config("tls");
    let (admin, connection) = Config::connect(&admin, tokio_postgres::NoTls).await?;
    let driving = tokio::spawn(connection);
    admin
        .batch_execute("alter role postgres password 'right'")
        .await?;
    drop(admin);
    driving.await??;
    let mut wrong = Vec::new();
    let mut seen = HashMap::new();
    for (certificate, access, parameters) in CASES {
        site.show(certificate, access)?;
        for case in parameters {
            let case = case.replace('@', &site.server.data_dir().display().to_string());
            let own_host = case.contains("host=");
            let host = if own_host { "" } else { "host=localhost" };
            let port = site.server.port();
            let place = format!("{host} port={port} user=postgres dbname=tls");
            let address = format!("{place} {case}");
            let expected = site.psql(&address, &[])?;
            *seen.entry(expected).or_insert(0) += 1;
            let (of_variables, rest): (Vec<_>, Vec<_>) = case
                .split(' ')
                .partition(|pair| variable(pair.split('=').next().unwrap_or_default()).is_some());
            let variables: Vec<_> = of_variables
                .iter()
                .filter_map(|pair| pair.split_once('='))
                .filter_map(|(name, value)| Some((variable(name)?, value.to_owned())))
                .collect();
            let bare = format!("{place} {}", rest.join(" "));
            let outcomes = [
                site.ours(&address, &[]).await?,
                site.psql(&bare, &variables)?,
                site.ours(&bare, &variables).await?,
            ];
            if outcomes != [expected; 3] {
                wrong.push(format!(
                    "{certificate}, {access}, {case}: psql {expected:?}, then {outcomes:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The matrix contains all three outcomes, so it does not only compare failures.
    for outcome in [Some(true), Some(false), None] {
        assert!(
            seen.get(&outcome).is_some_and(|&count| count > 4),
            "{seen:?}"
        );
    }
    Ok(())
}

/// The home directory, the access rule, and the modes.
const HOMES: [(&str, &str, &[&str]); 7] = [
    ("none", ONLY_TLS, &["prefer", "require", "verify-ca"]),
    ("trusting", ONLY_TLS, &["prefer", "require", "verify-full"]),
    ("other", ONLY_TLS, &["prefer", "require", "verify-full"]),
    ("revoking", ONLY_TLS, &["prefer", "require", "verify-ca"]),
    ("listing", ONLY_TLS, &["require", "verify-full"]),
    ("known", CERTIFICATE, &["prefer", "require", "disable"]),
    ("open", CERTIFICATE, &["require"]),
];
const CERTIFICATE: &str = "hostssl all all 127.0.0.1/32 cert";

#[tokio::test]
async fn files_in_libpqs_own_directory_mean_what_they_mean_to_psql() -> Result {
    let Some(mut site) = Site::make(EITHER).await? else {
        return Ok(());
    };
    let (mut wrong, mut came) = (Vec::new(), Vec::new());
    for (home, access, modes) in HOMES {
        site.show("server", access)?;
        for mode in modes {
            let address = site.text("localhost", &format!("sslmode={mode}"));
            let run = |program: &str, arguments: [&str; 3]| {
                let mut command = site.server.command(program);
                command.args(arguments).env("HOME", site.file(home));
                command.output().map(|output| output.status.success())
            };
            let psql = run("psql", ["-Xqc", "select", &address])?;
            let ours = run(
                env!("CARGO_BIN_EXE_trax"),
                ["check", "--database-url", &address],
            )?;
            if psql != ours {
                wrong.push(format!("{home}, {mode}: psql {psql}, trax {ours}"));
            }
            if psql {
                came.push(format!("{home} {mode}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(
        came,
        [
            "none prefer",
            "none require",
            "trusting prefer",
            "trusting require",
            "trusting verify-full",
            "listing require",
            "listing verify-full",
            "known prefer",
            "known require",
        ]
    );
    Ok(())
}

#[tokio::test]
async fn what_this_library_refuses_and_libpq_takes_is_said() -> Result {
    let Some(mut site) = Site::make(EITHER).await? else {
        return Ok(());
    };
    let ca = site.file("ca.crt");
    let missing = format!("sslmode=verify-ca sslrootcert={ca} sslcrl=/no/such.crl");
    Site::says(
        site.encrypted("localhost", &missing).await,
        "sslcrl /no/such.crl",
    );
    let (cert, key) = (site.file("client.crt"), site.file("locked.key"));
    let locked = format!("sslmode=require sslcert={cert} sslkey={key}");
    Site::says(
        site.encrypted("localhost", &locked).await,
        "it is encrypted",
    );
    let weak = "sslmode=prefer sslrootcert=system";
    Site::says(
        site.encrypted("localhost", weak).await.map(|_| true),
        "use sslmode=verify-full",
    );
    site.show("version1", ONLY_TLS)?;
    let signed = format!("sslmode=verify-ca sslrootcert={ca}");
    Site::says(
        site.encrypted("localhost", &signed).await,
        "X.509 version 1",
    );
    Ok(())
}

#[tokio::test]
async fn a_stream_that_is_open_already_is_encrypted_as_the_address_says() -> Result {
    let Some(site) = Site::make(EITHER).await? else {
        return Ok(());
    };
    let ca = site.file("ca.crt");
    let place = ("127.0.0.1", site.server.port());
    // The address names no host; the caller does.
    for (mode, encrypted) in [("verify-full", true), ("prefer", true), ("disable", false)] {
        let text = format!("user=postgres dbname=tls sslmode={mode} sslrootcert={ca}");
        let address: Address = text.parse()?;
        let stream = tokio::net::TcpStream::connect(place).await?;
        let client = address.connect_over(stream, "localhost").await?;
        let seen: bool = client.query_one(SQL, &[]).await?.get(0);
        assert_eq!(seen, encrypted, "{mode}");
    }
    Ok(())
}

#[tokio::test]
async fn a_revoked_certificate_and_an_open_key_are_named() -> Result {
    let Some(site) = Site::make(EITHER).await? else {
        return Ok(());
    };
    let ca = site.file("ca.crt");
    for (list, part) in [
        ("revoked", "is revoked"),
        ("foreign", "sslcrl contains no list of the CA"),
        ("late", "has expired"),
    ] {
        let list = site.file(&format!("{list}.crl"));
        let listed = format!("sslmode=verify-ca sslrootcert={ca} sslcrl={list}");
        Site::says(site.encrypted("localhost", &listed).await, part);
    }
    let (cert, key) = (site.file("client.crt"), site.file("open.key"));
    let open = format!("sslmode=require sslcert={cert} sslkey={key}");
    Site::says(site.encrypted("localhost", &open).await, "chmod 600");
    Ok(())
}
