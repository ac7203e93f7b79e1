//! The reasons that `trax.explain_job` and `trax.explain_manifest` return, as a table.

use maud::{Markup, html};
use tokio_postgres::types::{ToSql, Type};

use super::Page;
use crate::layout::{table, text};
use crate::moment::Moment;
use crate::trouble::Trouble;
use crate::visit::Visit;

/// Returns a heading and the reasons that a query returns.
pub(super) async fn reasons(
    page: &Page<'_>,
    title: &str,
    query: &str,
    argument: (&(dyn ToSql + Sync), Type),
) -> Result<Markup, Trouble> {
    let mut shown = Vec::new();
    for row in page.work.rows(query, &[argument]).await? {
        let reason: Option<String> = row.try_get("reason")?;
        let detail: Option<String> = row.try_get("detail")?;
        let since: Option<Moment> = row.try_get("since")?;
        let action: Option<String> = row.try_get("action")?;
        shown.push(vec![
            html! { (reason.unwrap_or_default().replace('_', " ")) },
            linked(page.visit, detail.as_deref().unwrap_or_default()),
            html! { @if let Some(at) = since { (at.shown(page.reader.now)) } },
            text(action.as_deref()),
        ]);
    }
    let head = ["reason", "detail", "since", "what to type"];
    Ok(html! {
        h2 { (title) }
        (table(title, &head, &shown, "Nothing holds it."))
    })
}

/// Returns a sentence in which the ids behind the word "job" are links.
fn linked(visit: &Visit, sentence: &str) -> Markup {
    html! {
        @for (word, id) in words(sentence) {
            @if let Some(id) = id {
                a href=(visit.link(&format!("jobs/{id}"))) { (id) }
                (word.trim_start_matches(id)) " "
            } @else {
                (word) " "
            }
        }
    }
}

/// Returns the words of a sentence, each with the id of a job with which it begins: the number
/// behind the word "job", and further numbers behind a comma.
fn words(sentence: &str) -> Vec<(&str, Option<&str>)> {
    let mut is_next = false;
    let mut marked = Vec::new();
    for word in sentence.split(' ') {
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        let id = (is_next && digits > 0).then(|| &word[..digits]);
        is_next = word.eq_ignore_ascii_case("job") || (id.is_some() && word.ends_with(','));
        marked.push((word, id));
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn the_numbers_behind_the_word_job_are_ids() {
        let ids =
            |sentence| -> Vec<&str> { words(sentence).iter().filter_map(|(_, id)| *id).collect() };
        assert_eq!(
            ids("Job 5 waits: 1 may run at once; now executed: job 3, 4."),
            ["5", "3", "4"]
        );
        assert_eq!(ids("3 workers take it, 7 jobs stand before it."), [""; 0]);
    }
}
