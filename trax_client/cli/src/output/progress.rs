//! A progress bar with a rate, on a terminal only.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// The progress of work of known or unknown size.
pub(crate) struct Progress(Option<ProgressBar>);

/// Less work than this ends before a bar could be read.
const WORTH_A_BAR: usize = 200;

impl Progress {
    /// Begins a bar for work of `total` items.
    pub(crate) fn new(total: usize, what: &str) -> Self {
        if total < WORTH_A_BAR || !stderr().is_terminal() {
            return Progress(None);
        }
        let template = format!("{{bar:30}} {{pos}} of {{len}} {what}, {{rate}}, {{eta}} to go");
        Progress(Some(styled(ProgressBar::new(total as u64), &template)))
    }

    /// Begins a display for work of unknown size.
    pub(crate) fn endless(what: &str) -> Self {
        if !stderr().is_terminal() {
            return Progress(None);
        }
        let template = format!("{{spinner}} {{pos}} {what}, {{rate}}");
        Progress(Some(styled(ProgressBar::new_spinner(), &template)))
    }

    pub(crate) fn add(&self, pieces: usize) {
        if let Some(bar) = &self.0 {
            bar.inc(pieces as u64);
        }
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => {
            let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                // If writing fails, the bar shows no rate.
                write!(out, "{:.0}/s", state.per_sec()).ok();
            };
            bar.with_style(style.with_key("rate", rate))
        }
        Err(_) => bar,
    }
}
