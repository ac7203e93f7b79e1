//! Inputs that a type of Rust cannot hold, and what becomes of the jobs beside them.

use super::{enqueue, run, worker};
use harness::database;
use harness::scheduler::{connect, execute, value};
use serde::Deserialize;
use serde_json::Value;
use trax_client::{Context, HandlerResult, Json};

/// A number out of range, 200 arrays, 1000 digits, a long id.
const STRANGE: &str = "select trax.enqueue_many('t', array[
    '1e400', repeat('[', 200) || repeat(']', 200), repeat('7', 1000), '{\"id\": 12345678901234567890123}'
]::jsonb[])";

#[tokio::test]
async fn an_input_that_no_type_can_hold_fails_its_own_job_for_good_and_no_other() {
    let database = database().await;
    let client = connect(&database).await;
    execute(&client, STRANGE).await;
    for input in 0..10 {
        enqueue(&client, "t", input).await;
    }
    let any = |_: Value, _: Context| async { HandlerResult::Ok(()) };
    let summary = run(worker(&database).handle("t", any)).await;
    assert_eq!(
        (summary.completed, summary.dead, summary.lost),
        (11, 3, 0),
        "{summary}"
    );
    let said = "select count(*) from trax.dead_letter where last_error like 'the input cannot be decoded: %'";
    assert_eq!(value::<i64>(&client, said).await, 3);
}

#[tokio::test]
async fn a_handler_may_take_json_as_it_is_and_give_it_back() {
    let database = database().await;
    let client = connect(&database).await;
    execute(&client, STRANGE).await;
    let same = |input: Json, _: Context| async move { HandlerResult::Ok(input) };
    let summary = run(worker(&database).handle("t", same)).await;
    assert_eq!(summary.completed, 4, "{summary}");
    let sql = "select count(*) from trax.run where output::text = input::text";
    assert_eq!(value::<i64>(&client, sql).await, 4);
}

#[derive(Deserialize)]
struct Order {
    id: u128,
}

#[tokio::test]
async fn a_type_with_room_for_the_digits_gets_them() {
    let database = database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "select trax.enqueue('t', '{\"id\": 12345678901234567890123}')",
    )
    .await;
    let next = |order: Order, _: Context| async move { HandlerResult::Ok(order.id + 1) };
    run(worker(&database).handle("t", next)).await;
    let sql = "select output::text from trax.run";
    assert_eq!(
        value::<String>(&client, sql).await,
        "12345678901234567890124"
    );
}
