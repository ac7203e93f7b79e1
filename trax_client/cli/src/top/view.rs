//! The lists of `trax top`, of which the screen shows one.

/// The content of the list.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum View {
    #[default]
    Groups,
    Running,
    Tasks,
    Workers,
    Dead,
}

impl View {
    pub(super) const ALL: [View; 5] = [
        View::Groups,
        View::Running,
        View::Tasks,
        View::Workers,
        View::Dead,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            View::Groups => "groups",
            View::Running => "running",
            View::Tasks => "tasks",
            View::Workers => "workers",
            View::Dead => "dead letters",
        }
    }

    pub(super) fn keys(self) -> &'static str {
        match self {
            View::Groups => "p pause or resume the group",
            View::Running => "c cancel the job",
            View::Dead => "r queue it again",
            View::Tasks | View::Workers => "",
        }
    }

    fn by(self, step: usize) -> View {
        View::ALL[(self as usize + step) % View::ALL.len()]
    }

    pub(super) fn next(self) -> View {
        self.by(1)
    }

    pub(super) fn previous(self) -> View {
        self.by(View::ALL.len() - 1)
    }
}
