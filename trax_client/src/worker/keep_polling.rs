//! Keeps the caller's runtime polling its connections while a handler blocks one of its threads.
//!
//! In tokio, one thread waits for I/O events. If it returns with a single task, it wakes no other
//! thread to wait in its place. If that task blocks, every connection of the runtime stalls, even
//! if other threads are idle. A task spawned from outside wakes a thread, which then waits. Without
//! this, 7 of 10 runs of the test
//! `a_handler_that_blocks_its_thread_holds_up_nobody_who_has_another` stalled until the handler
//! ended.

use std::time::Duration;

use tokio::runtime::Handle;

use super::held_leases::HeldLeases;

/// How long connections may stall.
const PERIOD: Duration = Duration::from_millis(100);

/// Wakes a thread of `runtime` periodically while leases are held. Never returns.
pub(crate) async fn keep_polling(runtime: Handle, held: &HeldLeases) {
    let mut last = None;
    loop {
        held.any_held().await;
        tokio::time::sleep(PERIOD).await;
        // While all threads are blocked, no further tasks are added.
        let came = last
            .as_ref()
            .is_none_or(tokio::task::JoinHandle::is_finished);
        if came {
            last = Some(runtime.spawn(std::future::ready(())));
        }
    }
}
