//! The order in which the manifests of a document are stored: parents first.

use super::Entry;
use crate::error::{Error, Result};
use std::collections::HashMap;

/// Returns the positions of the manifests, parents first. Keeps its path in a list instead of
/// recursion: a chain may be of any length.
pub(super) fn in_order(manifests: &[Entry]) -> Result<Vec<usize>> {
    let positions: HashMap<&str, usize> = manifests
        .iter()
        .enumerate()
        .map(|(index, entry)| (entry.name.as_str(), index))
        .collect();
    let mut order = Vec::with_capacity(manifests.len());
    let mut visited = vec![Visit::Not; manifests.len()];
    for start in 0..manifests.len() {
        // Each step is a manifest and how many of its parents have been visited.
        let mut path: Vec<(usize, usize)> = Vec::new();
        if visited[start] == Visit::Not {
            path.push((start, 0));
            visited[start] = Visit::OnPath;
        }
        while let Some((index, parent)) = path.last_mut() {
            pgrx::check_for_interrupts!();
            let parents = manifests[*index].depends_on.as_deref().unwrap_or_default();
            let Some(name) = parents.get(*parent) else {
                visited[*index] = Visit::Done;
                order.push(*index);
                path.pop();
                continue;
            };
            *parent += 1;
            let Some(&next) = positions.get(name.as_str()) else {
                continue;
            };
            match visited[next] {
                Visit::Done => {}
                Visit::OnPath => return Err(circle(manifests, &path, next)),
                Visit::Not => {
                    visited[next] = Visit::OnPath;
                    path.push((next, 0));
                }
            }
        }
    }
    Ok(order)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Not,
    OnPath,
    Done,
}

fn circle(manifests: &[Entry], path: &[(usize, usize)], closing: usize) -> Error {
    let name = |index: usize| manifests[index].name.as_str();
    let on_path = path
        .iter()
        .map(|&(index, _)| index)
        .skip_while(|&index| index != closing);
    let names: Vec<&str> = on_path.chain([closing]).map(name).collect();
    Error::invalid(format!(
        "manifest \"{}\" would depend on itself",
        name(closing)
    ))
    .detail(format!("The circle is {}.", names.join(" -> ")))
    .hint("Leave out one of these edges in depends_on.")
}
