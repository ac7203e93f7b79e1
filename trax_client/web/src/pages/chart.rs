//! Charts of sixty values: bars or lines over a scale, each value under the pointer or the arrow
//! keys (see script.js), and without a script as the title of its bar.

use maud::{Markup, html};

use crate::moment::Moment;
use crate::numbers::grouped;

/// The width of a value and the height of a chart, in units of the drawing.
const STEP: usize = 6;
const HIGH: f64 = 60.0;

/// A line of a chart; a missing value interrupts it.
pub(super) struct Line<'p> {
    pub(super) class: &'p str,
    pub(super) points: &'p [Option<f64>],
}

/// Returns a chart of bars. `values` are the texts of the bars, `step` is their width in seconds.
pub(super) fn bars(
    class: &str,
    label: &str,
    heights: &[f64],
    values: &[String],
    since: Moment,
    step: f64,
    scale: impl Fn(&str) -> String,
) -> Markup {
    let top = round_above(heights.iter().copied().fold(0.0, f64::max));
    let drawing = html! {
        @for (i, (height, value)) in heights.iter().zip(values).enumerate() {
            @if *height > 0.0 {
                @let height = (height / top * HIGH).max(1.5);
                rect .(class) x=(i * STEP) y=(format!("{:.1}", HIGH - height)) width="5"
                    height=(format!("{height:.1}")) { title { (value) } }
            }
        }
    };
    plot(
        label,
        &drawing,
        values,
        since,
        step,
        [scale(&exact(top)), scale(&exact(top / 2.0))],
    )
}

/// Returns a chart of lines.
pub(super) fn lines(
    label: &str,
    lines: &[Line<'_>],
    values: &[String],
    since: Moment,
    step: f64,
    scale: impl Fn(&str) -> String,
) -> Markup {
    let all = lines.iter().flat_map(|line| line.points.iter().flatten());
    let top = round_above(all.copied().fold(0.0, f64::max));
    let drawing = html! {
        @for line in lines { path .line .(line.class) d=(path(line.points, top)) {} }
    };
    plot(
        label,
        &drawing,
        values,
        since,
        step,
        [scale(&exact(top)), scale(&exact(top / 2.0))],
    )
}

/// Returns the path of a line: a short stroke for each value, connected to the one before.
fn path(points: &[Option<f64>], top: f64) -> String {
    let mut path = String::new();
    let mut is_drawn = false;
    for (i, point) in points.iter().enumerate() {
        if let Some(value) = point {
            let (x, y) = (i * STEP, HIGH - value / top * HIGH);
            let how = if is_drawn { 'L' } else { 'M' };
            path.push_str(&format!("{how}{x} {y:.1}h{}", STEP - 1));
        }
        is_drawn = point.is_some();
    }
    path
}

fn plot(
    label: &str,
    drawing: &Markup,
    values: &[String],
    since: Moment,
    step: f64,
    [top, middle]: [String; 2],
) -> Markup {
    html! {
        div .plot {
            svg viewBox="0 0 360 61" role="img" aria-label=(label) preserveAspectRatio="none" tabindex="0"
                data-values=(values.join("|")) data-since=(since.exact()) data-step=(format!("{step:.3}")) {
                @for y in ["0.5", "30", "60.5"] { line .ground x1="0" x2="360" y1=(y) y2=(y) {} }
                (drawing)
                rect .cursor width="5" height="60" y="0" x="-9" {}
            }
            span .top aria-hidden="true" { (top) }
            span .middle aria-hidden="true" { (middle) }
            span .zero aria-hidden="true" { "0" }
            output {}
        }
    }
}

/// Returns a number of a scale with all its digits: "2.5", "0.025", "5,000".
#[expect(clippy::cast_possible_truncation, reason = "far below the largest")]
fn exact(number: f64) -> String {
    if number >= 100.0 {
        return grouped(number.round() as i64);
    }
    let digits = format!("{number:.6}");
    digits
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
}

/// Returns the next of 1, 2, 5, 10, 20, 50 and so on, for a scale with round numbers.
fn round_above(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(most.log10().floor());
    let found = [1.0, 2.0, 5.0].into_iter().find(|n| n * power >= most);
    found.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_ends_at_a_round_number_above_all_values() {
        for (most, top) in [
            (0.0, 1.0),
            (0.3, 0.5),
            (1.0, 1.0),
            (1.1, 2.0),
            (47.0, 50.0),
            (51.0, 100.0),
        ] {
            assert!(
                (round_above(most) - top).abs() < 1e-9,
                "{most}: {}",
                round_above(most)
            );
        }
    }

    #[test]
    fn the_numbers_of_a_scale_have_all_their_digits() {
        for (number, text) in [
            (2.5, "2.5"),
            (0.025, "0.025"),
            (50.0, "50"),
            (5_000.0, "5,000"),
        ] {
            assert_eq!(exact(number), text);
        }
    }

    #[test]
    fn a_line_is_interrupted_where_there_is_no_value() {
        let points = [Some(1.0), Some(2.0), None, Some(0.0)];
        assert_eq!(path(&points, 2.0), "M0 30.0h5L6 0.0h5M18 60.0h5");
    }
}
