//! What schedules of pg_cron have beside cron.

/// Reads "30 seconds", which pg_cron knows beside cron.
pub(super) fn seconds(schedule: &str) -> Option<u32> {
    let (number, unit) = schedule.trim().split_once(char::is_whitespace)?;
    matches!(
        unit.trim().to_ascii_lowercase().as_str(),
        "second" | "seconds"
    )
    .then(|| number.parse().ok())?
}

/// Translates the $ that pg_cron writes for the last day of a month.
pub(super) fn last_day(schedule: &str) -> String {
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    let fields = fields
        .iter()
        .enumerate()
        .map(|(place, field)| match (place, *field) {
            (2, "$") => "L",
            (_, field) => field,
        });
    fields.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedules_of_pg_cron_are_those_of_cron_and_two_more() {
        assert_eq!(seconds("30 seconds"), Some(30));
        assert_eq!(seconds("1 Second"), Some(1));
        assert_eq!(seconds("0 3 * * *"), None);
        assert_eq!(last_day("0 12  $ * *"), "0 12 L * *");
    }
}
