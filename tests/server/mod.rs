//! What the extension asks of the server.

mod durability;
mod memory;
mod statement;
