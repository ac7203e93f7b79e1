//! The note of a completion: what its run keeps in `detail`, beside the output.

use serde::Serialize;

use crate::id::Token;
use crate::json::Json;
use crate::reached;

/// The most bytes of the steps that a note names: every server takes 1 kB, and a refusal would end
/// the transaction of a handler that completes its job itself.
const BYTES_AT_MOST: usize = 800;
/// The most bytes that a name takes in the server beside its characters.
const BYTES_OF_NAME: usize = 8;

/// The note of a completion; stored as an object without its empty members.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Note {
    /// The reason for which the output was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<String>,
    /// Recorded steps that the attempt has not reached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unreached_steps: Vec<String>,
}

impl Note {
    /// Returns the note of an attempt of this process, as far as it is known; empty for others. It
    /// names as many steps as there is room for.
    pub(crate) fn of(token: Token) -> Self {
        let fits = |room: &mut usize, name: String| {
            *room = room.checked_sub(name.len() + BYTES_OF_NAME)?;
            Some(name)
        };
        let unreached = reached::unreached(token).into_iter();
        Note {
            unreached_steps: unreached.scan(BYTES_AT_MOST, fits).collect(),
            output: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.output.is_none() && self.unreached_steps.is_empty()
    }

    /// Returns the object, unless it is empty.
    pub(crate) fn json(&self) -> Option<Json> {
        // Names that were recorded can be stored again.
        let json = (!self.is_empty()).then(|| Json::of(self));
        json.and_then(Result::ok)
    }
}
