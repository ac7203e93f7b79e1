//! The text format of Prometheus, version 0.0.4.

use serde_json::Value;

use super::{Sample, family};

/// Returns the samples, grouped by family under HELP and TYPE. Samples with invalid names are left
/// out, as a router's shard chooses its names.
pub(super) fn exposition(samples: &[Sample]) -> String {
    let mut families: Vec<(&str, Vec<&Sample>)> = Vec::new();
    for sample in samples.iter().filter(|sample| can_be_written(sample)) {
        let (name, ..) = family::of(&sample.name);
        match families.iter_mut().find(|(known, _)| *known == name) {
            Some((_, members)) => members.push(sample),
            None => families.push((name, vec![sample])),
        }
    }
    let mut text = String::new();
    for (_, members) in &families {
        let (name, kind, help) = family::of(&members[0].name);
        text.push_str(&format!("# HELP {name} {help}\n"));
        text.push_str(&format!("# TYPE {name} {}\n", kind.name()));
        for sample in members {
            line(&mut text, sample);
        }
    }
    text
}

/// Returns whether the names of a sample and its labels are valid in Prometheus.
fn can_be_written(sample: &Sample) -> bool {
    let is_name = |name: &str, more: &[char]| {
        let is_letter = |c: char| c.is_ascii_alphabetic() || more.contains(&c);
        name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
    };
    let mut labels = sample.labels.as_object().into_iter().flatten();
    is_name(&sample.name, &['_', ':']) && labels.all(|(name, _)| is_name(name, &['_']))
}

fn line(text: &mut String, sample: &Sample) {
    text.push_str(&sample.name);
    let labels = sample.labels.as_object();
    let pairs: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
        .collect();
    if !pairs.is_empty() {
        text.push_str(&format!("{{{}}}", pairs.join(",")));
    }
    text.push_str(&format!(" {}\n", number(sample.value)));
}

fn escaped(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value == f64::INFINITY {
        "+Inf".to_owned()
    } else if value == f64::NEG_INFINITY {
        "-Inf".to_owned()
    } else {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample(name: &str, labels: Value, value: f64) -> Sample {
        Sample {
            name: name.to_owned(),
            labels,
            value,
        }
    }

    #[test]
    fn a_sample_with_a_name_that_would_make_lines_is_left_out() {
        let samples = [
            sample("trax_a 1\ntrax_shard_up", json!({}), 1.0),
            sample("", json!({}), 1.0),
            sample("trax_b", json!({"a b": "c"}), 1.0),
            sample("trax_b", json!({"1a": "c"}), 1.0),
            sample("trax_c", json!({"a1": "x\ny"}), 1.0),
        ];
        let text = exposition(&samples);
        let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(lines, ["trax_c{a1=\"x\\ny\"} 1"]);
    }

    #[test]
    fn a_family_stands_together_under_its_kind() {
        let samples = [
            sample(
                "trax_run_seconds_bucket",
                json!({"le": "0.1", "task": "a"}),
                2.0,
            ),
            sample("trax_claims_total", json!({"task": "a"}), 3.0),
            sample("trax_run_seconds_count", json!({"task": "a"}), 2.0),
            sample("trax_claims_total", json!({"task": "b"}), 1e15),
            sample("trax_later_total", json!({}), f64::INFINITY),
        ];
        let text = exposition(&samples);
        let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with("# HELP")).collect();
        assert_eq!(
            lines,
            [
                "# TYPE trax_run_seconds histogram",
                "trax_run_seconds_bucket{le=\"0.1\",task=\"a\"} 2",
                "trax_run_seconds_count{task=\"a\"} 2",
                "# TYPE trax_claims_total counter",
                "trax_claims_total{task=\"a\"} 3",
                "trax_claims_total{task=\"b\"} 1000000000000000",
                "# TYPE trax_later_total counter",
                "trax_later_total +Inf",
            ]
        );
    }

    #[test]
    fn a_task_may_have_any_name() {
        let text = exposition(&[sample("trax_x", json!({"task": "a\"b\\c\nd"}), 1.5)]);
        assert!(
            text.ends_with("trax_x{task=\"a\\\"b\\\\c\\nd\"} 1.5\n"),
            "{text}"
        );
    }
}
