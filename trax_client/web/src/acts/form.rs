//! The form of an act: its fields, its statement as a user would type it, and the buttons.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::Target;
use super::list::{Act, Field, Input, RESCHEDULE};
use super::order::Order;
use crate::layout::{self, Reader};
use crate::numbers::grouped;
use crate::trouble::Trouble;
use crate::visit::{LONG, VALUE, Values, Visit};
use crate::work::Purpose;

const STEPS: &str = include_str!("../query/step_names.sql");
/// The maximum number of steps in a list to choose from; of more, the user types the name.
const CHOSEN: i64 = 1_000;

/// The form of an act.
pub(super) struct Form<'f, 'd> {
    pub(super) targets: &'f [Target<'d>],
    pub(super) act: &'f Act,
    pub(super) values: &'f Values,
    /// The values of the fields, for each selected row.
    pub(super) rows: &'f [Vec<Option<&'f str>>],
    pub(super) orders: &'f [Order<'d>],
    /// The steps of the job, if a field asks for one.
    pub(super) steps: &'f [String],
    /// The reason why the values were refused.
    pub(super) refusal: Option<&'f Trouble>,
}

impl Form<'_, '_> {
    /// Returns the form; `tried` is the result of trying the act.
    pub(super) fn markup(&self, visit: &Visit, reader: &Reader, tried: &Markup) -> Markup {
        let act = self.act;
        let can_be_tried = self.orders.iter().all(Order::can_be_tried);
        let shows_times = act.name == RESCHEDULE;
        let perform = html! { button type="submit" { (act.title) } " " };
        html! {
            h1 { (act.title) }
            @if let Some(refusal) = self.refusal { (refused(refusal)) }
            @if let Some(shards) = shards(self.targets) {
                p { "On " (shards) ", each separately: a refusal by one does not affect the others." }
            }
            form method="post" action=(visit.link(&format!("act/{}", act.name))) {
                input type="hidden" name="token" value=(visit.token);
                @for (i, field) in act.fields.iter().enumerate() { (self.field(i, field)) }
                @if act.asks_for_reason() {
                    label {
                        "reason, for trax.audit"
                        input name="reason" value=[self.values.get("reason")] maxlength="900";
                    }
                }
                p {
                    @if self.orders.len() > 1 { (self.orders.len()) " statements, each a transaction, " }
                    @else { "This statement " }
                    "will run as role " b { (reader.role) } ":"
                }
                (layout::verbatim(&self.words()))
                // The first button is that of the key Enter.
                @if !shows_times { (perform) }
                @if can_be_tried {
                    button type="submit" name="try" value="1" {
                        @if shows_times { "Show its next ten times, change nothing" }
                        @else { "Try it, change nothing" }
                    }
                    " "
                }
                @if shows_times { (perform) }
                a href=(act.back(visit, self.rows)) { "Back" }
                @if !can_be_tried {
                    p .hint { "It cannot be tried: it goes through the router, where a shard commits by itself." }
                }
            }
            (tried)
        }
    }

    /// Returns the input of a field; for several rows, one for each.
    fn field(&self, place: usize, field: &Field) -> Markup {
        let values: Vec<_> = self
            .rows
            .iter()
            .map(|row| row.get(place).copied().flatten())
            .collect();
        let first = values.first().copied().flatten();
        let (name, label) = (field.name, field.label);
        if field.input == Input::Selected && values.len() > 1 {
            let names: Vec<&str> = values.iter().copied().flatten().collect();
            return html! {
                @for value in &names { input type="hidden" name=(name) value=(value); }
                p { (names.len()) " " (label) "s: " (names.join(", ")) }
            };
        }
        html! {
            label {
                (label)
                @match field.input {
                    Input::Given | Input::Selected => { input name=(name) value=[first] readonly; }
                    Input::Open => { input name=(name) value=[first] maxlength=(VALUE); }
                    Input::Needed(example) => {
                        input name=(name) value=[first] maxlength=(VALUE) required placeholder=(example);
                    }
                    Input::Json(example) => {
                        textarea name=(name) rows="3" maxlength=(LONG) placeholder=(example)
                            spellcheck="false" { (first.unwrap_or_default()) }
                    }
                    Input::Step => (self.step(name, first)),
                }
            }
        }
    }

    /// Returns the list of the steps of a job.
    fn step(&self, name: &str, chosen: Option<&str>) -> Markup {
        let is_listed = chosen.is_none_or(|step| self.steps.iter().any(|known| known == step));
        html! {
            @if self.steps.is_empty() || !is_listed {
                input name=(name) value=[chosen] maxlength=(VALUE) placeholder="none: all are taken over";
            } @else {
                select name=(name) {
                    option value="" { "none: all are taken over" }
                    @for step in self.steps {
                        option value=(step) selected[chosen == Some(step.as_str())] { (step) }
                    }
                }
            }
        }
    }

    /// Returns the statements as a user would type them.
    fn words(&self) -> String {
        words(
            self.orders
                .iter()
                .map(|order| typed(order.sql, &order.values)),
        )
    }
}

/// Returns the names of the steps of the job of a form, if it asks for one and they can be listed.
pub(super) async fn steps(
    target: &Target<'_>,
    visit: &Visit,
    act: &Act,
    rows: &[Vec<Option<&str>>],
) -> Vec<String> {
    let asks = act.fields.iter().any(|field| field.input == Input::Step);
    let job = rows.first().and_then(|row| row.first().copied().flatten());
    let (true, Some(job), Ok(database)) = (asks, job, &target.database) else {
        return Vec::new();
    };
    let read = async || -> Result<Vec<String>, Trouble> {
        let work = database.pool.begin(&visit.person, Purpose::Read).await?;
        let limit = CHOSEN + 1;
        let arguments = [(&job as _, Type::TEXT), (&limit as _, Type::INT8)];
        let rows = work.rows(STEPS, &arguments).await?;
        work.commit().await?;
        rows.iter().map(|row| Ok(row.try_get("step")?)).collect()
    };
    // Without a list the user types the name.
    let mut steps = read().await.unwrap_or_default();
    if i64::try_from(steps.len()).is_ok_and(|count| count > CHOSEN) {
        steps.clear();
    }
    steps
}

/// Returns the reason why the values of a form were refused.
fn refused(refusal: &Trouble) -> Markup {
    html! {
        div .finding.bad role="alert" {
            p { b { (refusal.message) } }
            @if let Some(detail) = &refusal.detail { p { (detail) } }
            @if let Some(hint) = &refusal.hint { p .hint { (hint) } }
        }
    }
}

/// The maximum number of statements on a page.
const SHOWN: usize = 5;

/// Returns the first of several statements.
pub(super) fn words(typed: impl ExactSizeIterator<Item = String>) -> String {
    let left = typed.len().saturating_sub(SHOWN);
    let mut shown: Vec<String> = typed.take(SHOWN).collect();
    if left > 0 {
        shown.push(format!("-- and {left} more"));
    }
    shown.join(";\n")
}

/// The number of characters of a value that a page shows.
const CHARACTERS: usize = 1_000;

/// Returns a statement with its values filled in, as a user would type it. Of a long value only the
/// beginning is shown.
pub(super) fn typed(sql: &str, values: &[Option<String>]) -> String {
    let code = sql.lines().filter(|line| !line.starts_with("--"));
    let code = code.collect::<Vec<_>>().join("\n");
    let mut parts = code.split('$');
    let mut sql = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(part.len());
        let place: usize = part[..end].parse().unwrap_or(0);
        match values.get(place.wrapping_sub(1)) {
            Some(Some(value)) => {
                let begin: String = value.chars().take(CHARACTERS).collect();
                sql.push_str(&format!("'{}'", begin.replace('\'', "''")));
                if let Some(left) = value
                    .chars()
                    .count()
                    .checked_sub(CHARACTERS)
                    .filter(|n| *n > 0)
                {
                    sql.push_str(&format!(
                        " /* and {} characters more */",
                        grouped(i64::try_from(left).unwrap_or(i64::MAX))
                    ));
                }
            }
            _ => sql.push_str("null"),
        }
        sql.push_str(&part[end..]);
    }
    sql
}

/// Returns the shards on which the act is performed: "shard 2", "the shards 1, 2".
fn shards(targets: &[Target<'_>]) -> Option<String> {
    let numbers: Vec<String> = targets
        .iter()
        .filter_map(|target| target.shard.map(|shard| shard.to_string()))
        .collect();
    match numbers.as_slice() {
        [] => None,
        [one] => Some(format!("shard {one}")),
        all => Some(format!("the shards {}", all.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acts::list::find;

    #[test]
    fn a_statement_is_shown_as_it_could_be_typed() {
        let act = find("requeue").expect("it is there");
        assert_eq!(
            typed(act.sql, &[Some("7".to_owned()), Some("it's $1".to_owned())]),
            "select trax.requeue_dead_letter(id => '7'::bigint, note => 'it''s $1')::text"
        );
    }

    #[test]
    fn of_a_long_value_the_beginning_is_shown() {
        let shown = typed("select $1", &[Some("x".repeat(1_000_000))]);
        assert!(
            shown.ends_with("x' /* and 999,000 characters more */"),
            "{shown}"
        );
        assert!(shown.len() < 1_100, "{}", shown.len());
    }
}
