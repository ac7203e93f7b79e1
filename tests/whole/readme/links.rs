//! Links of every Markdown file of the source: the target file and heading exist. Also checks the
//! order of the book.

use super::{documents, root, text};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Every Markdown file of the source.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut directories = vec![root()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory can be read") {
            let path = entry.expect("an entry can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let ours = !name.starts_with('.') && name != "target" && name != "node_modules";
            if path.is_dir() && ours {
                directories.push(path);
            } else if name.ends_with(".md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// The prose lines of a page, without fenced blocks, indented code and inline code.
fn prose(page: &str) -> Vec<String> {
    let (mut lines, mut fenced, mut blank) = (Vec::new(), false, true);
    for line in page.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !(fenced || blank && line.starts_with("    ")) {
            let outside = line.split('`').step_by(2);
            lines.push(outside.collect::<Vec<_>>().join("`"));
            blank = line.is_empty();
        }
    }
    lines
}

/// Returns the targets of a page's links.
fn links(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(page) {
        for (opening, closing) in [("](", ')'), ("href=\"", '"'), ("src=\"", '"')] {
            let targets = line.split(opening).skip(1);
            found.extend(targets.filter_map(|rest| Some(rest.split_once(closing)?.0.to_owned())));
        }
        // [label]: target
        let definition = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]:"));
        found.extend(definition.map(|(_, target)| target.trim().to_owned()));
    }
    found
}

/// The anchors of a page's headings, as GitHub and mdBook generate them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    let mut fenced = false;
    for line in page.lines() {
        fenced ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if fenced || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let anchor: String = heading
            .trim()
            .to_lowercase()
            .chars()
            .filter_map(|c| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || "_-".contains(c) => Some(c),
                _ => None,
            })
            .collect();
        let times = seen.entry(anchor.clone()).or_default();
        anchors.insert(match *times {
            0 => anchor,
            n => format!("{anchor}-{n}"),
        });
        *times += 1;
    }
    anchors
}

/// The dead links of a page; `read` returns the text of a file, if it exists.
fn dead_links(from: &Path, page: &str, read: impl Fn(&Path) -> Option<String>) -> Vec<String> {
    let directory = from.parent().unwrap_or(from);
    let leads = |link: &String| {
        let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
        let text = match target {
            "" => Some(page.to_owned()),
            target => read(&directory.join(target)),
        };
        text.is_some_and(|text| anchor.is_empty() || anchors(&text).contains(anchor))
    };
    let mut links = links(page);
    // scripts/docs makes api/, and then checks the links into it.
    let is_checked_there = |link: &str| link.contains("://") || link.starts_with("api/");
    links.retain(|link| !is_checked_there(link) && !leads(link));
    links
}

/// Reads a file; a directory is empty text.
fn read(path: &Path) -> Option<String> {
    if path.is_dir() {
        return Some(String::new());
    }
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[test]
fn every_link_of_every_page_leads_to_a_file_and_a_heading() {
    let mut dead = Vec::new();
    for page in pages() {
        for link in dead_links(&page, &text(&page), read) {
            dead.push(format!("{}: {link}", page.display()));
        }
    }
    assert!(dead.is_empty(), "these links lead nowhere: {dead:#?}");
}

#[test]
fn every_page_stands_in_the_book_once() {
    let summary = links(&text(&root().join("docs/SUMMARY.md")));
    for page in &documents()[1..] {
        let name = page
            .file_name()
            .expect("a page is a file")
            .to_string_lossy();
        let times = summary.iter().filter(|link| **link == *name).count();
        let wanted = usize::from(name != "SUMMARY.md");
        assert_eq!(times, wanted, "{name} in docs/SUMMARY.md");
    }
}

const PAGE: &str = "# A page

See [there](there.md), [its heading](there.md#two-words-and-code), [below](#a-page-1) and
[elsewhere](https://example.org/nothing).

# A page

```sh
echo '[no link](nowhere.md)'
```

    [no link](nowhere.md)

`[no link](nowhere.md)`
";
const THERE: &str = "## Two words, and `code`\n";

fn dead_in(page: &str) -> Vec<String> {
    dead_links(Path::new("docs/page.md"), page, |path| {
        (path == Path::new("docs/there.md")).then(|| THERE.to_owned())
    })
}

#[test]
fn a_page_whose_links_lead_somewhere_passes() {
    assert_eq!(dead_in(PAGE), Vec::<String>::new());
}

#[test]
fn a_dead_link_of_each_kind_is_found() {
    for (good, dead) in [
        ("(there.md)", "(their.md)"),
        ("there.md#two-words-and-code", "there.md#three-words"),
        ("#a-page-1", "#a-page-2"),
        ("[below](#a-page-1)", "<a href=\"gone.html\">"),
        ("[below](#a-page-1)", "![a picture](gone.png)"),
    ] {
        let page = PAGE.replace(good, dead);
        assert_eq!(dead_in(&page).len(), 1, "{dead}");
    }
    assert_eq!(dead_in("[a]: gone.md\n"), ["gone.md"]);
}
