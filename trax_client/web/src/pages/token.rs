//! The holders and waiters of tokens of `trax lock` and `trax.acquire_token`.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::Page;
use crate::layout::table;
use crate::moment::Moment;
use crate::trouble::Trouble;

const LIST: &str = include_str!("../query/token_list.sql");
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
    })
}
