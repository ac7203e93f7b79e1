//! Pseudo-random numbers, which are the same in every run with the same seed.

/// A generator of pseudo-random numbers.
pub struct Dice(u64);

impl Dice {
    /// Creates a generator from a seed.
    pub fn of(seed: u64) -> Self {
        Dice(seed)
    }

    /// Returns a number below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}
