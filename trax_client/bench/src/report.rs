//! Figures: medians of rounds, as a table for people and as JSON for programs.

use serde::Serialize;

use super::machine::Machine;
use super::meter::Cost;
use trax_terminal::Failure;
use trax_terminal::{print, stdout};

/// The unit of a figure.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub(crate) enum Unit {
    #[serde(rename = "jobs/s")]
    JobsPerSecond,
    #[serde(rename = "transactions/s")]
    TransactionsPerSecond,
    #[serde(rename = "steps/s")]
    StepsPerSecond,
    #[serde(rename = "manifests/s")]
    ManifestsPerSecond,
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "kB")]
    Kilobytes,
    #[serde(rename = "%")]
    Percent,
}

impl Unit {
    fn short(self) -> &'static str {
        match self {
            Unit::JobsPerSecond => "jobs/s",
            Unit::TransactionsPerSecond => "tx/s",
            Unit::StepsPerSecond => "steps/s",
            Unit::ManifestsPerSecond => "/s",
            Unit::Milliseconds => "ms",
            Unit::Kilobytes => "kB",
            Unit::Percent => "%",
        }
    }
}

/// A single measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    value: f64,
    cpu_us: Option<f64>,
    wal_bytes: Option<f64>,
}

impl Sample {
    /// Returns a value without costs, such as a time.
    pub(crate) fn bare(value: f64) -> Self {
        Sample {
            value,
            cpu_us: None,
            wal_bytes: None,
        }
    }

    /// Returns the rate of this many in an interval, and the cost of each.
    pub(crate) fn rate(count: i64, cost: Cost) -> Self {
        Self::rate_with(count, cost, cost)
    }

    /// Returns the rate in one interval, with the costs of a longer one.
    pub(crate) fn rate_with(count: i64, timed: Cost, whole: Cost) -> Self {
        let each = |sum: f64| sum / count.max(1) as f64;
        Sample {
            value: count as f64 / timed.seconds,
            cpu_us: whole.cpu_seconds.map(|seconds| each(seconds * 1e6)),
            wal_bytes: Some(each(whole.wal_bytes)),
        }
    }
}

/// A measurement and its floor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) measured: Sample,
    pub(crate) floor: Option<Sample>,
}

/// A line of an answer.
pub(crate) struct Figure {
    /// The part of the scenario; empty if there is only one.
    pub(crate) measure: String,
    pub(crate) unit: Unit,
    /// The measured quantity.
    pub(crate) what: String,
    /// The floor; empty without one.
    pub(crate) floor: String,
    pub(crate) rounds: Vec<Round>,
}

/// A round in the JSON output.
#[derive(Clone, Copy, Debug, Serialize)]
struct Numbers {
    value: f64,
    floor: Option<f64>,
    ratio: Option<f64>,
    cpu_us_per_job: Option<f64>,
    wal_bytes_per_job: Option<f64>,
    floor_cpu_us_per_job: Option<f64>,
    floor_wal_bytes_per_job: Option<f64>,
}

impl Numbers {
    fn of(round: &Round) -> Self {
        let (measured, floor) = (round.measured, round.floor);
        Numbers {
            value: measured.value,
            floor: floor.map(|f| f.value),
            ratio: floor.map(|f| measured.value / f.value),
            cpu_us_per_job: measured.cpu_us,
            wal_bytes_per_job: measured.wal_bytes,
            floor_cpu_us_per_job: floor.and_then(|f| f.cpu_us),
            floor_wal_bytes_per_job: floor.and_then(|f| f.wal_bytes),
        }
    }

    /// Returns the median of every number. The median ratio is of two numbers measured side by
    /// side.
    fn median(rounds: &[Numbers]) -> Self {
        let of = |number: fn(&Numbers) -> Option<f64>| {
            median(rounds.iter().filter_map(number).collect())
        };
        Numbers {
            value: of(|n| Some(n.value)).unwrap_or(0.0),
            floor: of(|n| n.floor),
            ratio: of(|n| n.ratio),
            cpu_us_per_job: of(|n| n.cpu_us_per_job),
            wal_bytes_per_job: of(|n| n.wal_bytes_per_job),
            floor_cpu_us_per_job: of(|n| n.floor_cpu_us_per_job),
            floor_wal_bytes_per_job: of(|n| n.floor_wal_bytes_per_job),
        }
    }
}

/// Returns the median.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 {
        upper
    } else {
        (values[middle - 1] + upper) / 2.0
    })
}

/// A figure in the JSON output.
#[derive(Serialize)]
struct Line {
    scenario: &'static str,
    measure: String,
    unit: Unit,
    #[serde(flatten)]
    median: Numbers,
    what: String,
    floor_is: String,
    rounds: Vec<Numbers>,
}

#[derive(Serialize)]
pub(crate) struct Report {
    machine: Machine,
    #[serde(skip)]
    json: bool,
    results: Vec<Line>,
}

impl Report {
    pub(crate) fn new(machine: Machine, json: bool) -> Self {
        Report {
            machine,
            json,
            results: Vec::new(),
        }
    }

    /// Writes the lines above the figures.
    pub(crate) fn begin(&self) -> Result<(), Failure> {
        if !self.json {
            for line in self.machine.lines() {
                stdout::say(&print::folded(&line, 2))?;
            }
            let row = ["", "measured", "floor", "ratio", "CPU µs/job", "WAL B/job"];
            stdout::say(&format!("\n{}", columns(row.map(str::to_owned))))?;
        }
        Ok(())
    }

    pub(crate) fn add(
        &mut self,
        scenario: &'static str,
        figures: Vec<Figure>,
    ) -> Result<(), Failure> {
        for figure in figures {
            let rounds: Vec<Numbers> = figure.rounds.iter().map(Numbers::of).collect();
            let line = Line {
                scenario,
                measure: figure.measure,
                unit: figure.unit,
                median: Numbers::median(&rounds),
                what: figure.what,
                floor_is: figure.floor,
                rounds,
            };
            if !self.json {
                stdout::say(&line.row())?;
            }
            self.results.push(line);
        }
        Ok(())
    }

    /// Writes the JSON document, or the legend of the table.
    pub(crate) fn end(&self) -> Result<(), Failure> {
        if self.json {
            let text = serde_json::to_string(self).map_err(trax_client::Error::from)?;
            return stdout::say(&text);
        }
        if !self.results.is_empty() {
            let text = "Medians of the rounds; ratio: measured to floor, the median of the rounds' own. CPU: all \
                 processes of the server; n/a: they are not on this machine. In brackets: the floor's.";
            stdout::say(&format!("\n{}", print::folded(text, 0)))?;
        }
        for line in &self.results {
            stdout::say(&print::folded(&line.meaning(), 4))?;
        }
        Ok(())
    }
}

impl Line {
    fn name(&self) -> String {
        format!("{} {}", self.scenario, self.measure)
            .trim_end()
            .to_owned()
    }

    fn row(&self) -> String {
        let unit = self.unit.short();
        let value =
            |value: Option<f64>| value.map_or(String::new(), |v| format!("{} {unit}", number(v)));
        let pair = |own: Option<f64>, floor: Option<f64>| match (own, floor) {
            (Some(own), Some(floor)) => format!("{} ({})", number(own), number(floor)),
            (Some(own), None) => number(own),
            (None, _) => String::new(),
        };
        let n = &self.median;
        columns([
            self.name(),
            value(Some(n.value)),
            value(n.floor),
            n.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")),
            match (n.cpu_us_per_job, n.wal_bytes_per_job) {
                // The server's processes are not visible from here.
                (None, Some(_)) => "n/a".to_owned(),
                (cpu, _) => pair(cpu, n.floor_cpu_us_per_job),
            },
            pair(n.wal_bytes_per_job, n.floor_wal_bytes_per_job),
        ])
    }

    fn meaning(&self) -> String {
        let what = format!("{}: {}", self.name(), self.what);
        match self.floor_is.as_str() {
            "" => what,
            floor => format!("{what}. Floor: {floor}"),
        }
    }
}

fn columns(cells: [String; 6]) -> String {
    let [name, measured, floor, ratio, cpu, wal] = cells;
    format!("{name:<20}{measured:>15}{floor:>15}{ratio:>6} {cpu:>11} {wal:>11}")
        .trim_end()
        .to_owned()
}

/// Formats a number with three significant digits and separated thousands.
fn number(value: f64) -> String {
    match value.abs() {
        ..0.0005 => "0".to_owned(),
        ..1.0 => format!("{value:.3}"),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => {
            let digits = format!("{value:.0}");
            let mut text = String::new();
            for (place, digit) in digits.chars().enumerate() {
                if place > 0 && (digits.len() - place).is_multiple_of(3) && digit.is_ascii_digit() {
                    text.push(',');
                }
                text.push(digit);
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(value: f64, floor: f64) -> Round {
        Round {
            measured: Sample::bare(value),
            floor: Some(Sample::bare(floor)),
        }
    }

    #[test]
    fn the_ratio_is_the_median_of_what_was_taken_side_by_side() {
        let rounds = [round(10.0, 10.0), round(50.0, 100.0), round(60.0, 200.0)];
        let rounds: Vec<Numbers> = rounds.iter().map(Numbers::of).collect();
        let median = Numbers::median(&rounds);
        assert_eq!(
            (median.value, median.floor, median.ratio),
            (50.0, Some(100.0), Some(0.5))
        );
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn numbers_are_short() {
        let text: Vec<String> = [0.0001, 0.01234, 1.2345, 12.345, 999.6, 1234567.0]
            .into_iter()
            .map(number)
            .collect();
        assert_eq!(text, ["0", "0.012", "1.23", "12.3", "1,000", "1,234,567"]);
    }

    #[test]
    fn costs_are_reported_for_each_job() {
        let cost = Cost {
            seconds: 2.0,
            cpu_seconds: Some(0.001),
            wal_bytes: 5000.0,
        };
        let sample = Sample::rate(100, cost);
        assert_eq!(sample.value, 50.0);
        assert_eq!((sample.cpu_us, sample.wal_bytes), (Some(10.0), Some(50.0)));
    }
}
