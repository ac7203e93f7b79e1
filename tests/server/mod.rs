//! What the extension asks of the server.

mod backtrace;
mod durability;
mod memory;
mod statement;
