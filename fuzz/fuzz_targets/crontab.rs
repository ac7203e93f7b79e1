//! Any crontab: no input causes a panic, each line is a job or has a reason why not, and a job's
//! command is part of its line.
//!
//! Run it as in the header of schedule.rs, with `crontab` for `schedule`.
#![no_main]
#![allow(dead_code, unused_imports)]

use libfuzzer_sys::fuzz_target;

#[path = "../../trax_client/cli/src/import/crontab.rs"]
mod crontab;
#[path = "../../trax_client/cli/src/import/pg_cron_schedule.rs"]
mod pg_cron_schedule;

use crontab::{Form, read};

fn of_crontab(text: &str, form: Form) {
    for line in read(text, form) {
        let said = text.lines().nth(line.number - 1).map(str::trim);
        assert_eq!(said, Some(line.text.as_str()));
        match line.job {
            Err(reason) => assert!(!reason.is_empty()),
            Ok(job) => {
                assert!(!job.command.trim().is_empty());
                assert_eq!(job.user.is_some(), form == Form::System);
                let unescaped = line.text.replace("\\%", "%");
                assert!(unescaped.contains(&job.command), "{}", line.text);
            }
        }
    }
}

fn of_pg_cron(schedule: &str) {
    let seconds = pg_cron_schedule::seconds(schedule);
    assert!(seconds.is_none() || schedule.to_ascii_lowercase().contains("second"));
    let fields = pg_cron_schedule::last_day(schedule);
    assert_eq!(
        fields.split_whitespace().count(),
        schedule.split_whitespace().count()
    );
}

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        of_crontab(text, Form::User);
        of_crontab(text, Form::System);
        text.lines().for_each(of_pg_cron);
    }
});
