//! A list of commands: the name, the arguments and the function that runs each, on one line.

/// Defines the enum `Command` for clap, and `run`, which runs the selected command.
macro_rules! commands {
    ($($(#[$help:meta])* $name:ident($arguments:ty) => $run:expr,)+) => {
        #[derive(clap::Subcommand)]
        pub(crate) enum Command {
            $($(#[$help])* $name($arguments),)+
        }

        pub(crate) async fn run(
            url: Option<String>,
            command: Command,
        ) -> Result<std::process::ExitCode, trax_terminal::Failure> {
            match command {
                $(Command::$name(arguments) => $run(url, arguments).await,)+
            }
        }
    };
}

pub(crate) use commands;
