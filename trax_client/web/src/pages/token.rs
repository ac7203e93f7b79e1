//! The holders and waiters of tokens of `trax lock` and `trax.acquire_token`, and the rates.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::Page;
use crate::layout::table;
use crate::moment::Moment;
use crate::numbers::grouped;
use crate::trouble::Trouble;

const LIST: &str = include_str!("../query/token_list.sql");
const RATES: &str = include_str!("../query/rate_list.sql");
const MOST: i64 = 500;

pub(super) async fn list(page: &Page<'_>) -> Result<Markup, Trouble> {
    let rows = page.work.rows(LIST, &[(&(MOST + 1), Type::INT8)]).await?;
    let now = page.reader.now;
    let mut shown = Vec::new();
    let most = usize::try_from(MOST).unwrap_or(usize::MAX);
    for row in rows.iter().take(most) {
        let name: String = row.try_get("name")?;
        let is: String = row.try_get("state")?;
        let slot: i32 = row.try_get("slot")?;
        let holders: i32 = row.try_get("max_holders")?;
        let holder: String = row.try_get("holder")?;
        let since: Moment = row.try_get("since")?;
        let until: Option<Moment> = row.try_get("expires_at")?;
        shown.push(vec![
            html! { (name) },
            html! { (is) },
            html! {
                @if is == "held" { (slot) " of " (holders) } @else { (slot) " in line" }
            },
            html! { (holder) },
            since.shown(now),
            html! { @if let Some(at) = until { (at.shown(now)) } },
        ]);
    }
    let head = ["name", "state", "place", "who", "since", "until"];
    Ok(html! {
        (table("Tokens", &head, &shown, "No token is held."))
        @if rows.len() > most { p .hint { "These are the first " (MOST) "; there are more." } }
        (rates(page).await?)
    })
}

async fn rates(page: &Page<'_>) -> Result<Markup, Trouble> {
    let rows = page.work.rows(RATES, &[(&MOST, Type::INT8)]).await?;
    let now = page.reader.now;
    let mut shown = Vec::new();
    for row in &rows {
        let name: String = row.try_get("name")?;
        let allowed: i32 = row.try_get("allowed")?;
        let period: String = row.try_get("period")?;
        let burst: i32 = row.try_get("burst")?;
        let available: Option<i32> = row.try_get("available")?;
        let next: Option<Moment> = row.try_get("free_at")?;
        let closed: Option<Moment> = row.try_get("closed_until")?;
        let closed_for_good: bool = row.try_get("closed_for_good")?;
        let waiting: i64 = row.try_get("waiting")?;
        shown.push(vec![
            html! { (name) },
            html! { (allowed) " in " (period) },
            html! { (burst) },
            html! { @if let Some(left) = available { (left) } },
            html! { @if let Some(at) = next.filter(|_| closed.is_none()) { (at.shown(now)) } },
            html! {
                @if let Some(until) = closed { (until.shown(now)) }
                @if closed_for_good { "it is opened" }
            },
            html! { (grouped(waiting)) },
        ]);
    }
    let head = [
        "rate",
        "allowed",
        "burst",
        "left",
        "next",
        "closed until",
        "jobs that wait",
    ];
    Ok(table("Rates", &head, &shown, "There is no rate."))
}
