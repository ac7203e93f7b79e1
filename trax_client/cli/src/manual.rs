//! `trax completions` and `trax man`: the files that a package installs beside the binary. Needs no
//! database.

use std::fs::create_dir_all;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::output::say;
use trax_terminal::Failure;

#[derive(clap::Args)]
#[command(after_help = "\
bash  trax completions bash > /etc/bash_completion.d/trax
zsh   trax completions zsh > \"${fpath[1]}/_trax\"
fish  trax completions fish > ~/.config/fish/completions/trax.fish")]
pub(crate) struct CompletionArguments {
    /// The shell
    shell: Shell,
}

#[derive(clap::Args)]
#[command(after_help = "To read it right away: trax man | man -l -")]
pub(crate) struct ManArguments {
    /// Write trax.1 and a page for each command to this directory, instead of one page to standard
    /// output
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
}

pub(crate) async fn completions(
    _url: Option<String>,
    arguments: CompletionArguments,
) -> Result<ExitCode, Failure> {
    let (mut command, mut script) = (crate::Arguments::command(), Vec::new());
    clap_complete::generate(arguments.shell, &mut command, "trax", &mut script);
    say(String::from_utf8_lossy(&script).trim_end())?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn man(
    _url: Option<String>,
    arguments: ManArguments,
) -> Result<ExitCode, Failure> {
    let command = crate::Arguments::command();
    let Some(dir) = arguments.dir else {
        let page = page(command)?;
        say(String::from_utf8_lossy(&page).trim_end())?;
        return Ok(ExitCode::SUCCESS);
    };
    create_dir_all(&dir)
        .and_then(|()| clap_mangen::generate_to(command, &dir))
        .map_err(|error| Failure::new(format!("{} cannot be written: {error}", dir.display())))?;
    Ok(ExitCode::SUCCESS)
}

fn page(command: Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(page)
}
