//! Numbers that look random, the same in every run with one seed.

/// A generator of numbers.
pub struct Dice(u64);

impl Dice {
    /// From a seed.
    pub fn of(seed: u64) -> Self {
        Dice(seed)
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}
