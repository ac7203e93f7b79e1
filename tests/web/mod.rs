//! `trax web`: real pages of a real server, asked as browsers and attackers ask.

mod browser;
mod client;
mod page;
mod rights;
