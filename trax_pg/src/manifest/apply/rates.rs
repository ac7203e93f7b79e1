//! The rates of the document.
//!
//! They are stored before the groups that name them, and removed after those that named them.

use super::{Action, compared, kept_if_changed, nameless, removed};
use crate::audit::Kind;
use crate::document::Object;
use crate::error::{Error, Result};
use crate::rate;
use crate::rate::Settings;
use crate::server::spi::Spi;
use serde_json::Value;

/// Returns the settings of a rate of the document.
pub(super) fn settings(spi: &Spi, value: &Value, source: Option<&str>) -> Result<Settings> {
    let object = Object::new(value, "a rate", &["name", "allowed", "period", "burst"])?;
    let name = object.new_name("name")?.ok_or_else(|| nameless("a rate"))?;
    let allowed = object.within("allowed", 1, i32::MAX)?;
    let (period, micros) = object
        .interval_and_micros(spi, "period", 1)?
        .ok_or_else(|| missing("period"))?;
    Settings {
        name,
        allowed: allowed.ok_or_else(|| missing("allowed"))?,
        period,
        micros,
        burst: object.within("burst", 1, i32::MAX)?,
        applied: true,
        source: source.map(str::to_owned),
    }
    .checked()
}

fn missing(key: &str) -> Error {
    Error::invalid(format!("member \"{key}\" is missing"))
        .detail("A rate says how much it allows, and in which period.")
        .hint(r#"Specify both: {"name": "mail api", "allowed": 100, "period": "1 min"}"#)
}

/// Stores the rates that have other settings.
pub(super) fn apply(spi: &Spi, rates: &[Settings], actions: &mut Vec<Action>) -> Result<()> {
    for settings in rates {
        actions.push(kept_if_changed(|| {
            let difference =
                rate::store(spi, settings).map_err(|error| error.about("rate", &settings.name))?;
            Ok(compared(Kind::Rate, settings.name.clone(), difference))
        })?);
    }
    Ok(())
}

/// Removes rates whose use is locked; an error if a group or a job names one.
pub(super) fn prune(spi: &Spi, rates: Vec<String>, actions: &mut Vec<Action>) -> Result<()> {
    for name in rates {
        rate::remove(spi, &name).map_err(|error| {
            error.hint("Keep it in the document until no group and no job names it.")
        })?;
        actions.push(removed(Kind::Rate, name));
    }
    Ok(())
}
