//! An item of a list: a value, a name, a range, a wildcard, a step; and the fields they belong to.

use super::CronError;

/// A piece of the text and its position, counted from 1.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(crate) text: &'a str,
    pub(crate) position: usize,
}

impl<'a> Piece<'a> {
    /// Returns the parts between separators.
    pub(super) fn split(self, separator: char) -> impl Iterator<Item = Piece<'a>> {
        let mut position = self.position;
        self.text.split(separator).map(move |text| {
            let piece = Piece { text, position };
            position += text.len() + 1;
            piece
        })
    }

    /// Returns the parts before and after the first separator.
    pub(super) fn split_once(self, separator: char) -> Option<(Piece<'a>, Piece<'a>)> {
        let (before, after) = self.text.split_once(separator)?;
        let position = self.position + before.len() + 1;
        Some((
            Piece {
                text: before,
                ..self
            },
            Piece {
                text: after,
                position,
            },
        ))
    }

    /// Returns the text before a last letter, of either case.
    pub(super) fn before_last(self, letter: char) -> Option<Piece<'a>> {
        let text = self
            .text
            .strip_suffix([letter, letter.to_ascii_lowercase()])?;
        Some(Piece { text, ..self })
    }

    pub(super) fn is(self, text: &str) -> bool {
        self.text.eq_ignore_ascii_case(text)
    }

    pub(super) fn unsupported(self, hint: &str) -> CronError {
        self.error(format!("\"{}\" is not supported", self.text), hint)
    }

    pub(super) fn error(self, message: impl Into<String>, hint: impl Into<String>) -> CronError {
        CronError::new(self.position, message, hint)
    }
}

/// A field: its names in messages, its values, and their names.
pub(crate) struct Unit {
    pub(super) name: &'static str,
    pub(super) one: &'static str,
    pub(crate) min: u32,
    pub(crate) max: u32,
    /// How many different values there are: 7 is a second name of Sunday.
    pub(crate) size: u32,
    /// Whether `?` and rules such as `L` are valid.
    has_rules: bool,
    pub(crate) names: &'static [&'static str],
    pub(super) forms: &'static str,
}

pub(crate) const SECOND: Unit = Unit {
    name: "second",
    one: "a second",
    min: 0,
    max: 59,
    size: 60,
    has_rules: false,
    names: &[],
    forms: "Write a second from 0 to 59, a list (0,30), a range (10-20), a step (*/15) or *.",
};
pub(crate) const MINUTE: Unit = Unit {
    name: "minute",
    one: "a minute",
    forms: "Write a minute from 0 to 59, a list (0,30), a range (10-20), a step (*/15) or *.",
    ..SECOND
};
pub(crate) const HOUR: Unit = Unit {
    name: "hour",
    one: "an hour",
    max: 23,
    size: 24,
    forms: "Write an hour from 0 to 23, a list (8,20), a range (9-17 or 22-4), a step (*/6) or *.",
    ..SECOND
};
pub(crate) const DAY_OF_MONTH: Unit = Unit {
    name: "day of month",
    one: "a day of the month",
    min: 1,
    max: 31,
    size: 31,
    has_rules: true,
    names: &[],
    forms: "Write a day from 1 to 31, a list (1,15), a range (1-7), a step (*/2), L (the last \
        day), LW (the last weekday), 15W (the weekday nearest to the 15th), * or ?; the rules with \
        L and W take no range and no step.",
};
pub(crate) const MONTH: Unit = Unit {
    name: "month",
    one: "a month",
    min: 1,
    max: 12,
    size: 12,
    has_rules: false,
    names: &[
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ],
    forms: "Write a month from 1 to 12 or JAN to DEC, a list (1,7), a range (MAR-OCT), a step \
        (*/3) or *.",
};
pub(crate) const DAY_OF_WEEK: Unit = Unit {
    name: "day of week",
    one: "a day of the week",
    min: 0,
    max: 7,
    size: 7,
    has_rules: true,
    names: &[
        "sunday",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
    ],
    forms: "Write a day from 0 to 7 (0 and 7 are Sunday) or SUN to SAT, a list (1,3), a range \
        (MON-FRI), a step (*/2), 5L or FRIL (the last Friday of the month), 5#2 or FRI#2 (the \
        second Friday), * or ?; the rules with L and # take no range and no step.",
};

/// From `first` to `last` by `step`. `last` is below `first` when the range wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) step: u32,
    pub(crate) wildcard: bool,
}

/// An item of a field's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// `?`, which only the day fields have.
    Any,
    Span(Span),
    /// `L` of a day of the month.
    Last,
    /// `LW`.
    LastWeekday,
    /// `15W`.
    Nearest(u32),
    /// `5L`: the last such day of the month, 0 to 6.
    LastOfWeek(u32),
    /// `5#2`: the second such day of the month; the week from 1.
    Nth {
        day: u32,
        week: u32,
    },
}

/// Returns the items of a field.
pub(super) fn items(unit: &Unit, field: Piece<'_>) -> Result<Vec<Item>, CronError> {
    let item = match unit.name {
        _ if !unit.has_rules => plain_item,
        _ if field.is("?") => return Ok(vec![Item::Any]),
        "day of month" => day_of_month_item,
        _ => day_of_week_item,
    };
    let mut items = Vec::new();
    for piece in field.split(',') {
        refuse_form_of_others(unit, piece)?;
        items.push(item(unit, piece)?);
    }
    Ok(items)
}

/// Returns an error for forms of other dialects that this dialect lacks, with the text to type
/// instead.
fn refuse_form_of_others(unit: &Unit, item: Piece<'_>) -> Result<(), CronError> {
    let text = item.text.to_ascii_uppercase();
    let has_extent = text.contains(['-', '/']);
    let hint = if text == "H" || text.starts_with("H/") || text.starts_with("H(") {
        "Write a value; to spread manifests, give them a variance: variance => interval '10 min'."
    } else if text.contains('+') {
        "Write * in the day-of-week field, and leave out the other days: \
            exclusions => '{\"days_of_week\": [\"SAT\", \"SUN\"]}'."
    } else if unit.name == DAY_OF_MONTH.name && text.starts_with("L-") {
        "Write L for the last day, or schedule a manifest for each length of month: L-3 is \
            \"0 0 28 1,3,5,7,8,10,12 *\", \"0 0 27 4,6,9,11 *\" and, but for leap years, \
            \"0 0 25 2 *\"."
    } else if unit.name == DAY_OF_MONTH.name && has_extent && text.contains(['L', 'W']) {
        "Write a list, as in 14W,15W; the rules with L and W take no range and no step."
    } else if unit.name == DAY_OF_WEEK.name && has_extent && text.contains(['L', '#']) {
        "Write a list, as in MON#2,TUE#2 or MONL,TUEL; the rules with L and # take no range and \
            no step."
    } else {
        return Ok(());
    };
    Err(item.unsupported(hint))
}

fn plain_item(unit: &Unit, item: Piece<'_>) -> Result<Item, CronError> {
    span(unit, item).map(Item::Span)
}

fn day_of_month_item(unit: &Unit, item: Piece<'_>) -> Result<Item, CronError> {
    if item.is("L") {
        return Ok(Item::Last);
    }
    if item.is("LW") {
        return Ok(Item::LastWeekday);
    }
    match item.before_last('W').filter(|day| is_number(day.text)) {
        Some(day) => value(unit, day).map(Item::Nearest),
        None => plain_item(unit, item),
    }
}

fn day_of_week_item(unit: &Unit, item: Piece<'_>) -> Result<Item, CronError> {
    if item.is("L") {
        let hint = "Name the day in front of L, as in 5L or FRIL for the last Friday of the month.";
        return Err(item.error("\"L\" names no day of the week", hint));
    }
    if let Some((day, week)) = item.split_once('#') {
        let day = value(unit, day)? % unit.size;
        let week = self::week(week)?;
        return Ok(Item::Nth { day, week });
    }
    match item.before_last('L') {
        Some(day) => Ok(Item::LastOfWeek(value(unit, day)? % unit.size)),
        None => plain_item(unit, item),
    }
}

/// Returns the n of `FRI#n`.
fn week(nth: Piece<'_>) -> Result<u32, CronError> {
    match number(nth.text).filter(|_| nth.text.len() == 1) {
        Some(week @ 1..=5) => Ok(week),
        _ => {
            let message = format!("\"{}\" is not a week of the month", nth.text);
            let hint = "Write 1 to 5 after #, as in FRI#2 for the second Friday.";
            Err(nth.error(message, hint))
        }
    }
}

impl Span {
    /// Returns whether the item is `*` or the equivalent `*/1`.
    pub(crate) fn is_all(&self) -> bool {
        self.wildcard && self.step == 1
    }

    /// Returns the values, in the order in which they are counted.
    pub(super) fn values(&self, unit: &Unit) -> impl Iterator<Item = u32> {
        let (min, size) = (unit.min, unit.size);
        let last = if self.first > self.last {
            self.last + size
        } else {
            self.last
        };
        (self.first..=last)
            .step_by(self.step as usize)
            .map(move |v| min + (v - min) % size)
    }

    /// Adds the span as the `cron` crate writes it.
    pub(super) fn add_to(&self, unit: &Unit, plain: &mut Plain) {
        let Span {
            first, last, step, ..
        } = *self;
        if self.is_all() {
            plain.push("*".to_owned());
        } else if first <= last && step == 1 {
            plain.push(format!("{first}-{last}"));
        } else if first <= last {
            plain.push(format!("{first}-{last}/{step}"));
        } else if step == 1 {
            plain.push(format!("{first}-{}", unit.max));
            plain.push(format!("{}-{last}", unit.min));
        } else {
            self.values(unit)
                .for_each(|value| plain.push(value.to_string()));
        }
    }
}

/// Returns a value, a range or a wildcard, with or without a step.
pub(super) fn span(unit: &Unit, item: Piece<'_>) -> Result<Span, CronError> {
    let (base, step) = match item.split_once('/') {
        Some((base, step)) => (base, Some(step)),
        None => (item, None),
    };
    let every = step.map(|step| self::step(unit, step)).transpose()?;
    let top = unit.min + unit.size - 1;
    let wildcard = base.is("*");
    let (first, last) = if wildcard {
        (unit.min, top)
    } else if base.is("?") {
        let message = "\"?\" stands only alone and only in a day field";
        return Err(base.error(message, unit.forms));
    } else if let Some((first, last)) = base.split_once('-') {
        (value(unit, first)?, value(unit, last)?)
    } else {
        let first = value(unit, base)?;
        (first, if every.is_some() { top } else { first })
    };
    Ok(Span {
        first,
        last,
        step: every.unwrap_or(1),
        wildcard,
    })
}

pub(super) fn step(unit: &Unit, step: Piece<'_>) -> Result<u32, CronError> {
    let hint = || {
        let (name, max) = (unit.name, unit.max);
        format!("Write a step from 1 to {max} after / in the {name} field, as in */2.")
    };
    if !is_number(step.text) {
        return Err(step.error(format!("\"{}\" is not a step", step.text), hint()));
    }
    match number(step.text) {
        Some(every) if every >= 1 && every <= unit.max => Ok(every),
        _ => {
            let (name, text) = (unit.name, step.text);
            let message = format!("step \"{text}\" is out of range in the {name} field");
            Err(step.error(message, hint()))
        }
    }
}

/// Returns a number or a name.
pub(crate) fn value(unit: &Unit, piece: Piece<'_>) -> Result<u32, CronError> {
    let Piece { text, .. } = piece;
    if text.is_empty() {
        return Err(piece.error(format!("{} is missing", unit.one), unit.forms));
    }
    if is_number(text) {
        return number(text)
            .filter(|n| (unit.min..=unit.max).contains(n))
            .ok_or_else(|| {
                piece.error(
                    format!("{} \"{text}\" is out of range", unit.name),
                    unit.forms,
                )
            });
    }
    let lower = text.to_ascii_lowercase();
    let named = unit
        .names
        .iter()
        .position(|name| lower.len() >= 3 && name.starts_with(&lower));
    named
        .map(|index| unit.min + index as u32)
        .ok_or_else(|| piece.error(format!("\"{text}\" is not {}", unit.one), unit.forms))
}

pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns a number that fits in 32 bits; no valid value is larger.
pub(super) fn number(digits: &str) -> Option<u32> {
    digits.parse().ok()
}

/// The plain items of a field, in the words of the `cron` crate.
#[derive(Default)]
pub(super) struct Plain(Vec<String>);

impl Plain {
    /// Adds an item unless it is there already: the crate builds a set of 60 for each item.
    pub(super) fn push(&mut self, item: String) {
        if !self.0.contains(&item) {
            self.0.push(item);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the list; `*` if it is empty or contains `*`.
    pub(super) fn text(&self) -> String {
        if self.0.is_empty() || self.0.iter().any(|item| item == "*") {
            return "*".to_owned();
        }
        self.0.join(",")
    }
}
