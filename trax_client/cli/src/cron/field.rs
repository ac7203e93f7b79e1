//! One field of a cron expression that the server has accepted: its items.

/// What an item of a list says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Item {
    /// `*`, `?` and `*/1`.
    All,
    One(u32),
    Range(u32, u32),
    /// From, to, every so many; the whole field when it began with `*`.
    Step {
        first: u32,
        last: u32,
        every: u32,
        whole: bool,
    },
    /// `L` of a day of the month.
    Last,
    /// `LW`.
    LastWeekday,
    /// `15W`.
    Nearest(u32),
    /// `5L`: the last of a day of the week.
    LastOfWeek(u32),
    /// `5#2`.
    Nth(u32, u32),
}

/// The values and names that a field may have.
pub(super) struct Unit {
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) names: &'static [&'static str],
}

pub(super) const SECOND: Unit = Unit {
    min: 0,
    max: 59,
    names: &[],
};
pub(super) const MINUTE: Unit = SECOND;
pub(super) const HOUR: Unit = Unit { max: 23, ..SECOND };
pub(super) const DAY_OF_MONTH: Unit = Unit {
    min: 1,
    max: 31,
    names: &[],
};
pub(super) const MONTH: Unit = Unit {
    min: 1,
    max: 12,
    names: &[
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ],
};
pub(super) const DAY_OF_WEEK: Unit = Unit {
    min: 0,
    max: 6,
    names: &[
        "Sunday",
        "Monday",
        "Tuesday",
        "Wednesday",
        "Thursday",
        "Friday",
        "Saturday",
    ],
};

impl Unit {
    /// The items of a field; none when it is not one.
    pub(super) fn items(&self, field: &str) -> Option<Vec<Item>> {
        field.split(',').map(|item| self.item(item)).collect()
    }

    /// The name of a value, or the value.
    pub(super) fn say(&self, value: u32) -> String {
        let index = value.checked_sub(self.min).map(|index| index as usize);
        match index.and_then(|index| self.names.get(index)) {
            Some(name) => (*name).to_owned(),
            None => value.to_string(),
        }
    }

    fn item(&self, item: &str) -> Option<Item> {
        if matches!(item, "*" | "?") {
            return Some(Item::All);
        }
        if let Some(special) = self.special(item) {
            return Some(special);
        }
        let (base, every) = match item.split_once('/') {
            Some((base, every)) => (base, Some(every.parse().ok()?)),
            None => (item, None),
        };
        let (whole, first, last) = match (base, base.split_once('-')) {
            ("*", _) => (true, self.min, self.max),
            (_, Some((first, last))) => (false, self.value(first)?, self.value(last)?),
            (one, None) => {
                let one = self.value(one)?;
                (false, one, if every.is_some() { self.max } else { one })
            }
        };
        Some(match every {
            Some(1) if whole => Item::All,
            Some(1) | None if first == last => Item::One(first),
            Some(1) | None => Item::Range(first, last),
            Some(every) => Item::Step {
                first,
                last,
                every,
                whole,
            },
        })
    }

    /// What only the day fields have.
    fn special(&self, item: &str) -> Option<Item> {
        let upper = item.to_ascii_uppercase();
        if self.max == DAY_OF_WEEK.max {
            if let Some((day, nth)) = upper.split_once('#') {
                return Some(Item::Nth(self.value(day)?, nth.parse().ok()?));
            }
            return upper
                .strip_suffix('L')
                .and_then(|day| self.value(day))
                .map(Item::LastOfWeek);
        }
        match upper.as_str() {
            "L" => Some(Item::Last),
            "LW" => Some(Item::LastWeekday),
            _ => upper
                .strip_suffix('W')
                .and_then(|day| day.parse().ok())
                .map(Item::Nearest),
        }
    }

    /// A number or a name of three letters or more; 7 is Sunday.
    fn value(&self, text: &str) -> Option<u32> {
        if let Ok(number) = text.parse::<u32>() {
            return Some(if self.max == DAY_OF_WEEK.max {
                number % 7
            } else {
                number
            });
        }
        let lower = text.to_ascii_lowercase();
        let found = self
            .names
            .iter()
            .position(|name| lower.len() >= 3 && name.to_ascii_lowercase().starts_with(&lower))?;
        u32::try_from(found).ok().map(|index| self.min + index)
    }
}
