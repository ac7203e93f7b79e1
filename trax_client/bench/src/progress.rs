//! The progress display: a bar on a terminal, a line for each scenario elsewhere.

use std::cell::Cell;
use std::io::IsTerminal;
use std::rc::Rc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use trax_terminal::print;

#[derive(Clone)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    scenario: Rc<Cell<&'static str>>,
}

impl Progress {
    pub(crate) fn new(scenarios: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(scenarios as u64);
            if let Ok(style) = ProgressStyle::with_template("{elapsed:>5} [{bar:20}] {msg}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        Progress {
            bar,
            scenario: Rc::new(Cell::new("")),
        }
    }

    pub(crate) fn begin(&self, scenario: &'static str) {
        self.scenario.set(scenario);
        match &self.bar {
            Some(bar) => bar.set_message(scenario),
            None => print::log("trax bench", scenario),
        }
    }

    /// Shows the current step of the scenario.
    pub(crate) fn step(&self, step: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}: {step}", self.scenario.get()));
        }
    }

    /// Ends the scenario; `print` writes its lines while the bar is hidden.
    pub(crate) fn end<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => {
                let printed = bar.suspend(print);
                bar.inc(1);
                printed
            }
            None => print(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // Only the last handle clears the bar.
        if let Some(bar) = &self.bar
            && Rc::strong_count(&self.scenario) == 1
        {
            bar.finish_and_clear();
        }
    }
}
