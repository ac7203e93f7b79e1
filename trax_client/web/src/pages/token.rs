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
    let rows = page.work.rows(LIST, &[(&MOST, Type::INT8)]).await?;
    let now = page.reader.now;
    let mut shown = Vec::new();
    for row in &rows {
        let name: String = row.try_get("name")?;
        let is: String = row.try_get("state")?;
        let slot: i32 = row.try_get("slot")?;
        let most: i32 = row.try_get("max_holders")?;
        let holder: String = row.try_get("holder")?;
        let since: Moment = row.try_get("since")?;
        let until: Option<Moment> = row.try_get("expires_at")?;
        shown.push(vec![
            html! { (name) },
            html! { (is) },
            html! { (slot) " of " (most) },
            html! { (holder) },
            since.shown(now),
            html! { @if let Some(at) = until { (at.shown(now)) } },
        ]);
    }
    let head = ["name", "state", "place", "who", "since", "until"];
    Ok(html! {
        (table("Tokens", &head, &shown, "No token is held."))
        @if i64::try_from(rows.len()) == Ok(MOST) { p { "These are the first " (MOST) "." } }
    })
}
