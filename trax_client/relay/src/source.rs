//! The source: the side with the outbox.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};
use trax_client::{Address, Neighbor, Report};

use crate::held::Held;
use crate::row::{Carried, Ended, Entry, Lag, OldKey};
use crate::{Result, Trouble, rows, step};

const SIDE: &str = "source";

/// The maximum number of statements that determine which characters the source cannot store.
/// Further characters count as missing.
const MOST_QUESTIONS: usize = 1000;
/// How often a session that waits for notifications shows that it is alive.
const TOUCH: Duration = Duration::from_secs(20);

/// A connection to the database with the outbox, for one target.
pub(crate) struct Source {
    client: Client,
    target: String,
    patience: Duration,
    woken: Arc<Notify>,
    is_asleep: Option<bool>,
    /// The last row whose result was read.
    asked: i64,
    /// The number of the lock held by this session.
    key: i64,
}

fn read(error: tokio_postgres::Error) -> Trouble {
    Trouble::of(SIDE, error)
}

/// Returns whether the source cannot store a text, for example because its encoding lacks a
/// character.
fn is_of_the_text(error: &tokio_postgres::Error) -> bool {
    let code = error.code().map(|code| code.code());
    code.is_some_and(|code| code.starts_with("22"))
}

/// Whether a statement with texts succeeded, or the source's error.
type Stored = Result<(), tokio_postgres::Error>;

/// Returns whether a refusal was stored; false if the row itself prevents that.
fn was_stored(stored: Stored) -> Result<bool> {
    match stored {
        Ok(()) => Ok(true),
        Err(error) if is_too_large(&error) || is_of_the_text(&error) => Ok(false),
        Err(error) => Err(read(error)),
    }
}

/// The replacements made in the texts of results.
#[derive(Clone, Copy)]
enum Texts {
    AsTheyAre,
    Replaced,
    Dropped,
}

/// Returns the distinct characters that an encoding may lack.
fn beyond_ascii<'t>(texts: impl Iterator<Item = Option<&'t str>>) -> Vec<char> {
    let chars = texts.flatten().flat_map(str::chars);
    let chars: BTreeSet<char> = chars.filter(|char| !char.is_ascii()).collect();
    chars.into_iter().collect()
}

/// Returns the text with `?` in place of each missing character.
fn replace(text: &str, missing: &HashSet<char>) -> String {
    let known = |char| if missing.contains(&char) { '?' } else { char };
    text.chars().map(known).collect()
}

/// Returns whether a row is too large for a single value of the server.
fn is_too_large(error: &tokio_postgres::Error) -> bool {
    let code = error.code().map(|code| code.code());
    code.is_some_and(|code| code.starts_with("54") || code == "53200")
}

impl Source {
    /// Connects. A session that is idle for three times `patience` ends and releases its lock.
    pub(crate) async fn open(address: &Address, target: &str, patience: Duration) -> Result<Self> {
        let woken = Arc::new(Notify::new());
        let wake = Arc::clone(&woken);
        let client = address.connect_hearing(move |_| wake.notify_one()).await;
        let client = client.map_err(|error| Trouble::of(SIDE, error))?;
        let limit = format!("{}ms", (patience * 3).as_millis());
        let sql = include_str!("query/source/begin_session.sql");
        rows(SIDE, &client, sql, &[(&limit, Type::TEXT)]).await?;
        let genuine = Neighbor::Outbox.is_in(&client).await;
        genuine.map_err(|error| Trouble::of(SIDE, error))?;
        let listening = client.batch_execute("listen trax_outbox").await;
        listening.map_err(read)?;
        let key = loop {
            let sql = include_str!("query/source/begin_life.sql");
            let found = rows(SIDE, &client, sql, &[]).await?;
            if found[0].try_get(1).map_err(read)? {
                break found[0].try_get(0).map_err(read)?;
            }
        };
        Ok(Source {
            client,
            target: target.to_owned(),
            patience,
            woken,
            is_asleep: None,
            asked: 0,
            key,
        })
    }

    /// Takes the place for the target, which must be registered. Returns whether this connection
    /// now holds it.
    pub(crate) async fn take_place(&self) -> Result<bool> {
        let sql = include_str!("query/source/take_place.sql");
        let arguments: [(&(dyn ToSql + Sync), Type); 2] =
            [(&self.target, Type::TEXT), (&self.key, Type::INT8)];
        let found = rows(SIDE, &self.client, sql, &arguments).await?;
        found[0].try_get(0).map_err(read)
    }

    /// Returns the id of the outbox and the name of its database.
    pub(crate) async fn identity(&self) -> Result<(String, String)> {
        let sql = include_str!("query/source/identity.sql");
        let found = rows(SIDE, &self.client, sql, &[]).await?;
        let both = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
        match found.first() {
            Some(row) => both(row).map_err(read),
            None => Err(
                Trouble::new("source: the outbox has lost its row in trax_outbox.relay").hint(
                    "install it again: trax relay --outbox-sql | psql -1 -v ON_ERROR_STOP=1 SOURCE",
                ),
            ),
        }
    }

    /// Registers the target in the source.
    pub(crate) async fn register(&self, name: &str) -> Result<()> {
        let sql = include_str!("query/source/register.sql");
        let arguments: [(&(dyn ToSql + Sync), Type); 2] =
            [(&self.target, Type::TEXT), (&name, Type::TEXT)];
        let registered = self.client.query_typed(sql, &arguments).await;
        registered.map(drop).map_err(|error| {
            let code = error.code().map(|code| code.code().to_owned());
            let trouble = Trouble::of(SIDE, error);
            match code.as_deref() {
                Some("42P01" | "3F000") => trouble.hint(
                    "there is no outbox; make it: trax relay --outbox-sql | psql -1 -v ON_ERROR_STOP=1 SOURCE",
                ),
                Some("42501") => trouble
                    .hint("as the owner of the outbox: select trax_outbox.grant_access('role', 'relay'), \
                        which replaces another level of the role there"),
                _ => trouble,
            }
        })
    }

    /// Returns the first visible rows for the target, without held ones. Rows of new groups are
    /// assigned to one of the candidates first.
    pub(crate) async fn look(
        &self,
        batch: i64,
        candidates: &[String],
        held: &Held,
    ) -> Result<Vec<Entry>> {
        self.entries(batch, candidates, held, None).await
    }

    /// Returns the held rows that still exist.
    pub(crate) async fn look_again(&self, ids: &[i64]) -> Result<Vec<Entry>> {
        let none = Held::default();
        self.entries(0, &[], &none, Some(ids)).await
    }

    async fn entries(
        &self,
        batch: i64,
        candidates: &[String],
        held: &Held,
        again: Option<&[i64]>,
    ) -> Result<Vec<Entry>> {
        let sql = include_str!("query/source/look.sql");
        let arguments: [(&(dyn ToSql + Sync), Type); 6] = [
            (&self.target, Type::TEXT),
            (&candidates, Type::TEXT_ARRAY),
            (&batch, Type::INT8),
            (&held.ids(), Type::INT8_ARRAY),
            (&held.unique_keys(), Type::TEXT_ARRAY),
            (&again, Type::INT8_ARRAY),
        ];
        let found = rows(SIDE, &self.client, sql, &arguments).await?;
        let entry = |row: &Row| {
            let document: Option<String> = row.try_get("document")?;
            Ok(Entry {
                id: row.try_get("id")?,
                key: row.try_get("key")?,
                unique_key: row.try_get("unique_key")?,
                document: match document {
                    Some(document) => Ok(document),
                    None => Err((row.try_get("code")?, row.try_get("error")?)),
                },
            })
        };
        let entries: Result<_, tokio_postgres::Error> = found.iter().map(entry).collect();
        entries.map_err(read)
    }

    /// Sets whether the relay wants notifications. Returns whether that is a change.
    pub(crate) async fn set_asleep(&mut self, asleep: bool) -> Result<bool> {
        if self.is_asleep == Some(asleep) {
            return Ok(false);
        }
        let sql = include_str!("query/source/set_asleep.sql");
        let arguments: [(&(dyn ToSql + Sync), Type); 2] =
            [(&self.target, Type::TEXT), (&asleep, Type::BOOL)];
        rows(SIDE, &self.client, sql, &arguments).await?;
        self.is_asleep = Some(asleep);
        Ok(true)
    }

    /// Waits for a notification, the end of the connection or a timeout. Each is a reason to poll.
    pub(crate) async fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        let touch = TOUCH.min(self.patience);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if timeout(left.min(touch), self.woken.notified())
                .await
                .is_ok()
                || left <= touch
            {
                return Ok(());
            }
            step(self.patience, rows(SIDE, &self.client, "select", &[])).await?;
        }
    }

    /// Removes carried rows from the waiting ones.
    pub(crate) async fn settle(&self, carried: &[Carried], results: bool) -> Result<()> {
        let ids: Vec<i64> = carried.iter().map(|row| row.id).collect();
        let keys: Vec<&str> = carried.iter().map(|row| row.key.as_str()).collect();
        let jobs: Vec<i64> = carried.iter().map(|row| row.job_id).collect();
        let sql = include_str!("query/source/settle.sql");
        let arguments: [(&(dyn ToSql + Sync), Type); 4] = [
            (&ids, Type::INT8_ARRAY),
            (&keys, Type::TEXT_ARRAY),
            (&jobs, Type::INT8_ARRAY),
            (&results, Type::BOOL),
        ];
        rows(SIDE, &self.client, sql, &arguments).await.map(drop)
    }

    /// Moves a refused row from the waiting to the refused ones. Returns false if it cannot be
    /// stored there and keeps waiting.
    pub(crate) async fn refuse(&self, entry: &Entry, report: &Report) -> Result<bool> {
        match self.store_refusal(entry, report).await? {
            Err(error) if is_of_the_text(&error) => {}
            stored => return was_stored(stored),
        }
        let (detail, hint) = (report.detail.as_deref(), report.hint.as_deref());
        let texts = [Some(report.message.as_str()), detail, hint];
        let missing = self.missing(beyond_ascii(texts.into_iter())).await?;
        let report = Report {
            sqlstate: report.sqlstate.clone(),
            message: replace(&report.message, &missing),
            detail: detail.map(|text| replace(text, &missing)),
            hint: hint.map(|text| replace(text, &missing)),
        };
        was_stored(self.store_refusal(entry, &report).await?)
    }

    async fn store_refusal(&self, entry: &Entry, report: &Report) -> Result<Stored> {
        let sql = include_str!("query/source/refuse.sql");
        let arguments: [(&(dyn ToSql + Sync), Type); 6] = [
            (&entry.id, Type::INT8),
            (&entry.key, Type::TEXT),
            (&report.sqlstate, Type::TEXT),
            (&report.message, Type::TEXT),
            (&report.detail, Type::TEXT),
            (&report.hint, Type::TEXT),
        ];
        self.store(sql, &arguments).await
    }

    /// Runs a statement with texts that the source may be unable to store.
    async fn store(&self, sql: &str, arguments: &[(&(dyn ToSql + Sync), Type)]) -> Result<Stored> {
        let storing = async { Ok(self.client.query_typed(sql, arguments).await.map(drop)) };
        step(self.patience, storing).await
    }

    /// Returns the characters that the source's encoding lacks.
    async fn missing(&self, chars: Vec<char>) -> Result<HashSet<char>> {
        let mut missing = HashSet::new();
        let mut parts = vec![&chars[..]];
        let mut questions = 0;
        while let Some(part) = parts.pop() {
            questions += 1;
            if questions > MOST_QUESTIONS {
                missing.extend(part);
                continue;
            }
            let text: String = part.iter().collect();
            let arguments = [(&text as &(dyn ToSql + Sync), Type::TEXT)];
            match self.store("select where $1 is null", &arguments).await? {
                Ok(()) => {}
                Err(error) if !is_of_the_text(&error) => return Err(read(error)),
                Err(_) if part.len() == 1 => missing.extend(part),
                Err(_) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
        Ok(missing)
    }

    /// Returns the next rows without a result, with their jobs, in a cycle; empty at the end of
    /// each round.
    pub(crate) async fn unfinished(&mut self) -> Result<Vec<(i64, i64)>> {
        let sql = include_str!("query/source/unfinished.sql");
        let arguments: [(&(dyn ToSql + Sync), Type); 2] =
            [(&self.asked, Type::INT8), (&self.target, Type::TEXT)];
        let found = rows(SIDE, &self.client, sql, &arguments).await?;
        let pair = |row: &Row| Ok((row.try_get("id")?, row.try_get("job_id")?));
        let pairs: Result<Vec<_>, tokio_postgres::Error> = found.iter().map(pair).collect();
        let pairs: Vec<(i64, i64)> = pairs.map_err(read)?;
        self.asked = pairs.last().map_or(0, |(id, _)| *id);
        Ok(pairs)
    }

    /// Stores the results of jobs. If the source cannot store a text, characters that its encoding
    /// lacks are replaced by `?`. If it still cannot, the page is halved down to the failing job,
    /// which is stored without its output.
    pub(crate) async fn finish(&self, ended: Vec<Ended>) -> Result<()> {
        let mut parts = vec![(ended, Texts::AsTheyAre)];
        while let Some((mut part, texts)) = parts.pop() {
            let Err(error) = self.store_results(&part).await? else {
                continue;
            };
            if !is_of_the_text(&error) && !is_too_large(&error) {
                return Err(read(error));
            }
            match texts {
                Texts::AsTheyAre => {
                    self.replace_missing(&mut part).await?;
                    parts.push((part, Texts::Replaced));
                }
                Texts::Replaced if part.len() > 1 => {
                    let second = part.split_off(part.len() / 2);
                    parts.extend([(second, texts), (part, texts)]);
                }
                // Temporary.
                Texts::Replaced if error.code() == Some(&SqlState::OUT_OF_MEMORY) => {
                    return Err(read(error));
                }
                Texts::Replaced => {
                    let reason = error.as_db_error().map_or("", |error| error.message());
                    for job in &mut part {
                        job.output = None;
                        job.error = Some(format!("the result cannot be stored: {reason}"));
                    }
                    parts.push((part, Texts::Dropped));
                }
                Texts::Dropped => return Err(read(error)),
            }
        }
        Ok(())
    }

    async fn replace_missing(&self, ended: &mut [Ended]) -> Result<()> {
        let texts = ended.iter().flat_map(|job| [&job.output, &job.error]);
        let chars = beyond_ascii(texts.map(Option::as_deref));
        let missing = self.missing(chars).await?;
        for text in ended
            .iter_mut()
            .flat_map(|job| [&mut job.output, &mut job.error])
            .flatten()
        {
            *text = replace(text, &missing);
        }
        Ok(())
    }

    async fn store_results(&self, ended: &[Ended]) -> Result<Stored> {
        fn column<'a, T>(ended: &'a [Ended], of: impl Fn(&'a Ended) -> T) -> Vec<T> {
            ended.iter().map(of).collect()
        }
        let sql = include_str!("query/source/finish.sql");
        let arguments: [(&(dyn ToSql + Sync), Type); 5] = [
            (&column(ended, |job| job.id), Type::INT8_ARRAY),
            (&column(ended, |job| &job.state), Type::TEXT_ARRAY),
            (&column(ended, |job| &job.output), Type::TEXT_ARRAY),
            (&column(ended, |job| &job.error), Type::TEXT_ARRAY),
            (&column(ended, |job| &job.finished_at), Type::TEXT_ARRAY),
        ];
        self.store(sql, &arguments).await
    }

    /// Removes a page of expired results, and returns their number.
    pub(crate) async fn prune(&self) -> Result<i64> {
        let sql = include_str!("query/source/prune.sql");
        let found = rows(SIDE, &self.client, sql, &[]).await?;
        found[0].try_get(0).map_err(read)
    }

    /// Returns the targets that rows wait for and that are not candidates.
    pub(crate) async fn stranded(&self, candidates: &[String]) -> Result<Vec<String>> {
        let sql = include_str!("query/source/stranded.sql");
        let found = rows(SIDE, &self.client, sql, &[(&candidates, Type::TEXT_ARRAY)]).await?;
        let names: Result<_, _> = found.iter().map(|row| row.try_get(0)).collect();
        names.map_err(read)
    }

    /// Returns the keys whose rows no longer exist in the source.
    pub(crate) async fn without_row(&self, keys: Vec<OldKey>) -> Result<Vec<String>> {
        let sql = include_str!("query/source/still_there.sql");
        let ids: Vec<i64> = keys.iter().map(|old| old.id).collect();
        let found = rows(SIDE, &self.client, sql, &[(&ids, Type::INT8_ARRAY)]).await?;
        let there: Result<HashSet<String>, _> = found.iter().map(|row| row.try_get(0)).collect();
        let there = there.map_err(read)?;
        let keys = keys.into_iter().map(|old| old.key);
        Ok(keys.filter(|key| !there.contains(key)).collect())
    }

    pub(crate) async fn lag(&self) -> Result<Lag> {
        let sql = include_str!("query/source/lag.sql");
        let found = rows(SIDE, &self.client, sql, &[(&self.target, Type::TEXT)]).await?;
        Ok(Lag {
            waiting: found[0].try_get(0).map_err(read)?,
            age: found[0].try_get(1).map_err(read)?,
            refused: found[0].try_get(2).map_err(read)?,
            unplaced: found[0].try_get(3).map_err(read)?,
        })
    }
}
