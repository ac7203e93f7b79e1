//! The next seven days: every time at which a manifest fires, in the user's zone.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::{Page, manifest_path};
use crate::layout::table;
use crate::moment::Moment;
use crate::trouble::Trouble;

const CALENDAR: &str = include_str!("../query/calendar.sql");

/// The maximum number of manifests, and of times of each.
const MOST: usize = 40;
const TIMES: i32 = 300;
/// The number of days, and of times of a day that are shown unfolded.
const DAYS: usize = 7;
const UNFOLDED: usize = 6;

/// The times of a manifest.
struct Plan {
    name: String,
    times: Vec<Moment>,
}

/// Returns the week as a table with a row for each manifest and a column for each day.
pub(super) async fn week(page: &Page<'_>) -> Result<Markup, Trouble> {
    let (now, zone) = (page.reader.now, &page.visit.zone);
    let limit = i64::try_from(MOST + 1).unwrap_or(i64::MAX);
    let rows = page
        .work
        .rows(CALENDAR, &[(&limit, Type::INT8), (&TIMES, Type::INT4)])
        .await?;
    let mut plans: Vec<Plan> = Vec::new();
    for row in &rows {
        let name: String = row.try_get("name")?;
        let at: Moment = row.try_get("run_at")?;
        match plans.last_mut() {
            Some(plan) if plan.name == name => plan.times.push(at),
            _ => plans.push(Plan {
                name,
                times: vec![at],
            }),
        }
    }
    let has_more = plans.len() > MOST;
    plans.truncate(MOST);
    let days: Vec<String> = (0..DAYS).map(|day| now.day_after(zone, day)).collect();
    let shown: Vec<Vec<Markup>> = plans
        .iter()
        .map(|plan| {
            let name =
                html! { a href=(page.visit.link(&manifest_path(&plan.name))) { (plan.name) } };
            let cells = (0..DAYS).map(|day| cell(page, plan, &days[day]));
            std::iter::once(name).chain(cells).collect()
        })
        .collect();
    let mut head = vec!["manifest"];
    head.extend(days.iter().map(String::as_str));
    Ok(html! {
        h2 { "The next seven days" }
        p .hint { "Times in " (zone.name()) "." }
        (table("The next seven days", &head, &shown, "No manifest is due by time."))
        @if has_more { p .hint { "These are the " (MOST) " manifests that fire first; there are more." } }
    })
}

/// Returns the times of a manifest on a day.
fn cell(page: &Page<'_>, plan: &Plan, day: &str) -> Markup {
    let zone = &page.visit.zone;
    let is_on = |at: &&Moment| at.day_after(zone, 0) == day;
    let times: Vec<String> = plan
        .times
        .iter()
        .filter(is_on)
        .map(|at| at.clock(zone))
        .collect();
    // After the last computed time of a frequent manifest nothing is known.
    let is_cut = i32::try_from(plan.times.len()) == Ok(TIMES);
    let last = plan.times.last().map(|at| at.day_after(zone, 0));
    let is_over = |last: &String| {
        let place = |of: &str| (0..DAYS).find(|d| page.reader.now.day_after(zone, *d) == of);
        place(last) <= place(day)
    };
    let continues = is_cut && last.as_ref().is_some_and(is_over);
    html! {
        @if times.len() > UNFOLDED {
            details {
                summary { (times.len()) @if continues { " or more" } ", from " (times[0]) " to " (times[times.len() - 1]) }
                (times.join(", "))
            }
        } @else {
            (times.join(", "))
            @if continues { " and more" }
        }
    }
}
