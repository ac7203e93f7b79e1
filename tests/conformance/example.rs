//! The one-page workers of `trax_client/examples`, unchanged.

use super::program::{Language, read, unchanged};
use super::trial::{Start, Trial, Verdict, is};
use super::{on_this_thread, shared_server};

/// Text that a careless program would insert into SQL or split at a blank.
const CAREFUL: &str = r#"{"text": "don't $1; \\ panic"}"#;

async fn counts_words(trial: &Trial) -> Verdict {
    let enqueue = format!("trax.enqueue('count.words', $j${CAREFUL}$j$)");
    let four = trial.value(&enqueue).await?;
    let none = trial
        .value(r#"trax.enqueue('count.words', '{"text": ""}')"#)
        .await?;
    let worker = trial.start(Start::CALM);
    for (job, words) in [(four, "4"), (none, "0")] {
        let job = job.parse().map_err(|_| job)?;
        trial.becomes(job, "1 completed", &worker).await?;
        let output = format!("select output ->> 'words' from trax.run where job_id = {job}");
        is("words", trial.value(&output).await?.as_str(), words)?;
    }
    Ok(())
}

#[test]
fn each_example_counts_words() {
    for language in Language::ALL {
        let verdict = on_this_thread(async {
            let trial = Trial::new(unchanged(language), shared_server()).await;
            let verdict = counts_words(&trial).await;
            verdict.map_err(|wrong| format!("{language:?}: {wrong}{}", trial.said()))
        });
        assert_eq!(verdict, Ok(()));
    }
}

#[test]
fn each_example_is_a_page() {
    for language in Language::ALL {
        let (path, ..) = language.parts();
        let lines = read(path).lines().count();
        assert!(lines < 100, "{path} is a page, not more: {lines} lines");
    }
}

#[test]
fn no_example_of_psql_has_a_secret_among_its_arguments() {
    let script = read(Language::Psql.parts().0);
    for secret in ["DATABASE_URL", "-v token", "-v o=", "-v e=", "-d "] {
        assert!(!script.contains(secret), "{secret}");
    }
}
