//! Tables for people.

/// Rows under a header, columns aligned; empty columns and trailing blanks are left out.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..header.len())
        .map(|column| {
            let cells = rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|c| c.chars().count());
            let widest = cells.max().unwrap_or(0);
            if widest == 0 && !rows.is_empty() {
                0
            } else {
                widest.max(header[column].len())
            }
        })
        .collect();
    let line = |cells: Vec<&str>| {
        let cells = cells.iter().zip(&widths).filter(|(_, width)| **width > 0);
        let text: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.join("  ").trim_end().to_owned()
    };
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut lines = vec![
        line(header.to_vec()),
        line(rule.iter().map(String::as_str).collect()),
    ];
    lines.extend(
        rows.iter()
            .map(|row| line(row.iter().map(String::as_str).collect())),
    );
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_empty_ones_vanish() {
        let rows = vec![
            vec!["a".to_owned(), String::new(), "long".to_owned()],
            vec!["bcd".to_owned(), String::new(), "x".to_owned()],
        ];
        assert_eq!(
            table(&["k", "none", "v"], &rows),
            "k    v\n---  ----\na    long\nbcd  x"
        );
    }
}
