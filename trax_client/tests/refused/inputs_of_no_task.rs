use serde::Serialize;
use trax_client::NewJobs;

#[derive(Serialize)]
struct SendMail {}

fn main() {
    let _ = NewJobs::of(&[SendMail {}]);
}
