//! Keeps the caller's runtime looking at its connections while a handler blocks one of its threads.
//!
//! Of tokio's threads one waits for the operating system. When it comes back with a single task it
//! wakes no other to wait in its place; if that task blocks, every connection of the runtime stands
//! still, however many threads are idle. A task from outside wakes one, which then waits. Without
//! it 7 of 10 runs of the test `a_handler_that_blocks_its_thread_holds_up_nobody_who_has_another`
//! stood still until the handler ended.

use std::time::Duration;

use tokio::runtime::Handle;

use super::held::Held;

/// How long connections may stand still.
const PERIOD: Duration = Duration::from_millis(100);

/// Wakes a thread of `runtime` again and again while jobs are in hand; never returns.
pub(crate) async fn nudge(runtime: Handle, held: &Held) {
    let mut last = None;
    loop {
        held.in_hand().await;
        tokio::time::sleep(PERIOD).await;
        // A runtime all of whose threads are blocked does not get more of them.
        let came = last
            .as_ref()
            .is_none_or(tokio::task::JoinHandle::is_finished);
        if came {
            last = Some(runtime.spawn(std::future::ready(())));
        }
    }
}
