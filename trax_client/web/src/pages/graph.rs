//! The graph around a manifest: parents to the left, children to the right.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::{Page, manifest_path};
use crate::trouble::Trouble;

const GRAPH: &str = include_str!("../query/manifest_graph.sql");

/// The maximum number of manifests in a graph.
const MOST: usize = 60;
/// The maximum number of characters of a name in its box. The title has the full name.
const NAME: usize = 22;
/// The size of a box, and the distances between boxes, in pixels.
const WIDE: i32 = 180;
const HIGH: i32 = 28;
const STEP_X: i32 = 230;
const STEP_Y: i32 = 38;

struct Node {
    name: String,
    parents: Vec<String>,
    enabled: bool,
    x: i32,
    y: i32,
}

/// Returns the graph; empty for a manifest without parents and children.
pub(super) async fn show(page: &Page<'_>, name: &str) -> Result<Markup, Trouble> {
    let limit = i64::try_from(MOST).unwrap_or(i64::MAX);
    let rows = page
        .work
        .rows(GRAPH, &[(&name, Type::TEXT), (&limit, Type::INT8)])
        .await?;
    let mut nodes: Vec<Node> = Vec::new();
    let mut column: Option<(i32, i32)> = None;
    let mut first = 0;
    for row in &rows {
        let depth: i32 = row.try_get("depth")?;
        let place = match column {
            Some((last, place)) if last == depth => place + 1,
            _ => 0,
        };
        column = Some((depth, place));
        if nodes.is_empty() {
            first = depth;
        }
        nodes.push(Node {
            name: row.try_get("name")?,
            parents: row.try_get("parents")?,
            enabled: row.try_get("enabled")?,
            x: (depth - first) * STEP_X,
            y: place * STEP_Y,
        });
    }
    if nodes.len() < 2 {
        return Ok(html! {});
    }
    Ok(html! {
        h2 { "Before and behind it" }
        div .wide tabindex="0" role="region" aria-label="Before and behind it" { (picture(&boxes(page, name, &nodes), "manifests")) }
        @if nodes.len() == MOST { p .hint { "At most the " (MOST) " nearest are shown." } }
    })
}

fn boxes(page: &Page<'_>, name: &str, nodes: &[Node]) -> Vec<PictureBox> {
    let place = |name: &String| nodes.iter().position(|node| node.name == *name);
    nodes
        .iter()
        .map(|node| PictureBox {
            text: node.name.clone(),
            title: match node.enabled {
                true => node.name.clone(),
                false => format!("{}, disabled", node.name),
            },
            href: page.visit.link(&manifest_path(&node.name)),
            class: (!node.enabled).then(|| "disabled".to_owned()),
            is_here: node.name == name,
            parents: node.parents.iter().filter_map(place).collect(),
            x: node.x,
            y: node.y,
        })
        .collect()
}

/// A box of a picture.
pub(super) struct PictureBox {
    pub(super) text: String,
    pub(super) title: String,
    pub(super) href: String,
    pub(super) class: Option<String>,
    /// The page is about it.
    pub(super) is_here: bool,
    /// The positions of the boxes from which edges lead here.
    pub(super) parents: Vec<usize>,
    pub(super) x: i32,
    pub(super) y: i32,
}

impl PictureBox {
    /// Places the box in a column and a row, from 0.
    pub(super) fn at(self, column: i32, row: i32) -> Self {
        PictureBox {
            x: column * STEP_X,
            y: row * STEP_Y,
            ..self
        }
    }
}

/// Returns boxes with their edges; `what` names the boxes.
pub(super) fn picture(boxes: &[PictureBox], what: &str) -> Markup {
    let width = boxes.iter().map(|node| node.x).max().unwrap_or(0) + WIDE + 2;
    let height = boxes.iter().map(|node| node.y).max().unwrap_or(0) + HIGH + 2;
    let edges = boxes.iter().flat_map(|child| {
        let parents = child.parents.iter().map(|&parent| &boxes[parent]);
        parents.map(move |parent| (parent, child))
    });
    html! {
        svg .graph width=(width) height=(height) viewBox=(format!("-1 -1 {width} {height}"))
            role="group" aria-label=(format!("{} {what}", boxes.len())) {
            @for (parent, child) in edges {
                path .edge d=(edge(parent, child)) {}
            }
            @for node in boxes {
                a href=(node.href) class=(if node.is_here { "node here" } else { "node" }) {
                    title { (node.title) }
                    rect x=(node.x) y=(node.y) width=(WIDE) height=(HIGH) rx="5" class=[node.class.as_deref()] {}
                    text x=(node.x + 8) y=(node.y + 19) { (short(&node.text)) }
                }
            }
        }
    }
}

/// Returns the path from the right edge of a box to the left edge of another.
fn edge(parent: &PictureBox, child: &PictureBox) -> String {
    let (x1, y1) = (parent.x + WIDE, parent.y + HIGH / 2);
    let (x2, y2) = (child.x, child.y + HIGH / 2);
    let bend = 25;
    format!(
        "M{x1} {y1} C{} {y1} {} {y2} {x2} {y2}",
        x1 + bend,
        x2 - bend
    )
}

fn short(name: &str) -> String {
    match name.chars().count() > NAME {
        true => name.chars().take(NAME - 1).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(short("nightly"), "nightly");
        assert_eq!(short(&"ä".repeat(30)), format!("{}…", "ä".repeat(21)));
    }
}
