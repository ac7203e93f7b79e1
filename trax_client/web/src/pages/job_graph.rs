//! The graph or batch of a job: a picture of few jobs, a list of more.

use maud::{Markup, html};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Page;
use super::graph::{PictureBox, picture};
use crate::layout::state;
use crate::numbers::grouped;
use crate::trouble::Trouble;

const GRAPH: &str = include_str!("../query/job_graph.sql");

/// The maximum number of jobs of a picture, and of a list.
const PICTURED: usize = 60;
const LISTED: i64 = 100;

struct Member {
    name: Option<String>,
    job_id: i64,
    task: Option<String>,
    /// Unknown when its history was removed.
    state: Option<String>,
    needs: Vec<String>,
    condition: Option<String>,
    waits_for: Option<String>,
    error: Option<String>,
}

/// Returns the graph; empty for a job of none.
pub(super) async fn show(page: &Page<'_>, id: i64) -> Result<Markup, Trouble> {
    let arguments: [crate::work::Argument<'_>; 2] = [(&id, Type::INT8), (&LISTED, Type::INT8)];
    let rows = page.work.rows(GRAPH, &arguments).await?;
    let Some(first) = rows.first() else {
        return Ok(html! {});
    };
    let jobs: i64 = first.try_get("jobs")?;
    let members: Vec<Member> = rows.iter().map(Member::read).collect::<Result<_, _>>()?;
    let is_batch = members.iter().any(|member| member.name.is_none());
    Ok(html! {
        h2 { @if is_batch { "Its batch" } @else { "Its graph" } }
        @if !is_batch && jobs == members.len() as i64 && members.len() <= PICTURED {
            div .wide tabindex="0" role="region" aria-label="Its graph" { (picture(&boxes(page, id, &members), "jobs")) }
        }
        ul .tree aria-label="The jobs of the graph" {
            @for member in &members { li { (member.line(page)) } }
        }
        @if jobs > members.len() as i64 { p .hint { "The first " (members.len()) " of " (grouped(jobs)) " jobs are shown." } }
    })
}

/// Returns the boxes of the jobs, each in a column behind those that it needs.
fn boxes(page: &Page<'_>, id: i64, members: &[Member]) -> Vec<PictureBox> {
    let place = |name: &String| {
        members
            .iter()
            .position(|member| member.name.as_ref() == Some(name))
    };
    let parents: Vec<Vec<usize>> = members
        .iter()
        .map(|member| member.needs.iter().filter_map(place).collect())
        .collect();
    let columns = columns(&parents);
    let mut rows = vec![0; members.len() + 1];
    let mut boxes = Vec::with_capacity(members.len());
    for ((member, parents), &column) in members.iter().zip(parents).zip(&columns) {
        let row = rows[column];
        rows[column] += 1;
        let is = member.state.as_deref().unwrap_or("no longer kept");
        let name = member.name.clone().unwrap_or_default();
        let node = PictureBox {
            title: format!("{name}, {is}"),
            text: name,
            href: page.visit.link(&format!("jobs/{}", member.job_id)),
            class: Some(is.replace(' ', "-")),
            is_here: member.job_id == id,
            parents,
            x: 0,
            y: 0,
        };
        boxes.push(node.at(i32::try_from(column).unwrap_or(0), row));
    }
    boxes
}

/// Returns how many jobs stand before each, on the longest way.
fn columns(parents: &[Vec<usize>]) -> Vec<usize> {
    let mut columns = vec![0; parents.len()];
    // Names may stand in any order; a graph has no circle.
    for _ in 0..parents.len() {
        let mut is_done = true;
        for (index, parents) in parents.iter().enumerate() {
            let behind = parents.iter().map(|&parent| columns[parent] + 1).max();
            if let Some(behind) = behind.filter(|&behind| behind > columns[index]) {
                columns[index] = behind;
                is_done = false;
            }
        }
        if is_done {
            break;
        }
    }
    columns
}

impl Member {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Member {
            name: row.try_get("name")?,
            job_id: row.try_get("job_id")?,
            task: row.try_get("task")?,
            state: row.try_get("state")?,
            needs: row.try_get::<_, Option<_>>("needs")?.unwrap_or_default(),
            condition: row.try_get("condition")?,
            waits_for: row.try_get("waits_for")?,
            error: row.try_get("error")?,
        })
    }

    fn line(&self, page: &Page<'_>) -> Markup {
        html! {
            a href=(page.visit.link(&format!("jobs/{}", self.job_id))) {
                @if let Some(name) = &self.name { (name) } @else { "job " (self.job_id) }
            } " "
            @if let Some(is) = &self.state { (state(is)) } @else { "no longer kept" }
            @if let Some(what) = &self.waits_for { " for " (what) }
            @if let Some(task) = &self.task { ", task " (task) }
            @if !self.needs.is_empty() { ", after " (self.needs.join(", ")) }
            @match self.condition.as_deref() {
                Some("ended") if self.needs.is_empty() => ", after all",
                Some("ended") => ", whatever they become",
                Some("failed") => ", if one fails",
                _ => "",
            }
            @if let Some(error) = &self.error { ": " (error.chars().take(200).collect::<String>()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::columns;

    #[test]
    fn a_job_stands_behind_all_that_it_needs() {
        assert_eq!(
            columns(&[vec![1, 3], vec![], vec![0], vec![1]]),
            [2, 0, 3, 1]
        );
    }
}
