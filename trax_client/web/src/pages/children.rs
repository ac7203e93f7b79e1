//! The jobs that a job has spawned, as a tree.

use maud::{Markup, html};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Page;
use crate::layout::state;
use crate::moment::{Moment, length};
use crate::numbers::grouped;
use crate::trouble::Trouble;

const CHILDREN: &str = include_str!("../query/job_children.sql");

/// The number of levels below the job.
const DEPTH: i32 = 5;
/// The maximum number of children of a job, and of jobs in all.
const OF_ONE: i64 = 50;
const IN_ALL: i64 = 100;

/// The descendants of a job, each behind its parent, in the order of spawning.
pub(super) struct Children {
    all: Vec<Child>,
    /// Whether there are more than the tree shows.
    is_cut: bool,
}

struct Child {
    depth: i32,
    job_id: i64,
    parent_id: i64,
    step: String,
    /// The number of children of its parent.
    siblings: i64,
    /// Unknown when its history was removed.
    state: Option<String>,
    waits_for: Option<String>,
    task: Option<String>,
    started_at: Option<Moment>,
    finished_at: Option<Moment>,
}

impl Children {
    pub(super) async fn read(page: &Page<'_>, id: i64) -> Result<Self, Trouble> {
        let arguments: [crate::work::Argument<'_>; 4] = [
            (&id, Type::INT8),
            (&DEPTH, Type::INT4),
            (&OF_ONE, Type::INT8),
            (&(IN_ALL + 1), Type::INT8),
        ];
        let rows = page.work.rows(CHILDREN, &arguments).await?;
        let mut all: Vec<Child> = rows.iter().map(Child::read).collect::<Result<_, _>>()?;
        let most = usize::try_from(IN_ALL).unwrap_or(usize::MAX);
        let is_cut = all.len() > most;
        all.truncate(most);
        Ok(Children { all, is_cut })
    }

    /// Returns whether some wait or are executed.
    pub(super) fn live(&self) -> bool {
        self.all.iter().any(Child::lives)
    }

    pub(super) fn show(&self, page: &Page<'_>, id: i64) -> Markup {
        if self.all.is_empty() {
            return html! {};
        }
        html! {
            h2 { "Children" }
            (self.below(page, id, 1))
            @if self.is_cut || self.all.iter().any(|child| child.depth == DEPTH) {
                p .hint {
                    "Of each job at most " (OF_ONE) " children are shown, in all at most " (IN_ALL)
                    " on " (DEPTH) " levels. The page of each job shows those below it."
                }
            }
        }
    }

    /// Returns the list of the children of a job.
    fn below(&self, page: &Page<'_>, parent: i64, depth: i32) -> Markup {
        let is_here = |child: &&Child| child.parent_id == parent && child.depth == depth;
        let here: Vec<&Child> = self.all.iter().filter(is_here).collect();
        let Some(siblings) = here.first().map(|child| child.siblings) else {
            return html! {};
        };
        let shown = i64::try_from(here.len()).unwrap_or(i64::MAX);
        let all = page
            .visit
            .link_with("jobs", &[("parent", &parent.to_string())]);
        html! {
            ul .tree aria-label=(format!("Children of job {parent}")) {
                @for child in here { li { (child.line(page)) (self.below(page, child.job_id, depth + 1)) } }
                @if siblings > shown {
                    li { a href=(all) { "All " (grouped(siblings)) " children of job " (parent) } }
                }
            }
        }
    }
}

impl Child {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Child {
            depth: row.try_get("depth")?,
            job_id: row.try_get("job_id")?,
            parent_id: row.try_get("parent_id")?,
            step: row.try_get("step")?,
            siblings: row.try_get("siblings")?,
            state: row.try_get("state")?,
            waits_for: row.try_get("waits_for")?,
            task: row.try_get("task")?,
            started_at: row.try_get("started_at")?,
            finished_at: row.try_get("finished_at")?,
        })
    }

    fn lives(&self) -> bool {
        matches!(self.state.as_deref(), Some("queued" | "in_progress"))
    }

    fn line(&self, page: &Page<'_>) -> Markup {
        let end = self.finished_at.unwrap_or(page.reader.now);
        let took = self.started_at.and_then(|at| end.seconds_since(at));
        html! {
            a href=(page.visit.link(&format!("jobs/{}", self.job_id))) { "job " (self.job_id) } " "
            @if let Some(is) = &self.state { (state(is)) } @else { "no longer kept" }
            @if let Some(what) = &self.waits_for { " for " (what) }
            @if let Some(task) = &self.task { ", task " (task) }
            ", step " (self.step)
            @if let Some(took) = took { ", " (length(took)) }
        }
    }
}
