//! Graphs, batches and rates: the producers' calls, and the facts about them.

pub(crate) mod fact;
pub(crate) mod producer;
#[cfg(test)]
mod sabotage;

/// A rate of the campaign.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) name: &'static str,
    /// How much of it a second allows.
    pub(crate) allowed: i64,
    pub(crate) burst: i64,
}

/// The only rate; jobs of several keys use it.
pub(crate) const RATE: Rate = Rate {
    name: "api",
    allowed: 2,
    burst: 2,
};
