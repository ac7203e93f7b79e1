//! Manifests as a document to keep, compare and apply elsewhere.

use tokio_postgres::types::Type;

use crate::numbers::grouped;
use crate::trouble::Trouble;
use crate::work::Work;

const EXPORT: &str = include_str!("../query/export.sql");

/// The maximum number of manifests in a document.
const MOST: i64 = 5_000;

/// Returns the document of one manifest or of all, as JSON.
pub(super) async fn document(work: &Work<'_>, name: Option<&str>) -> Result<String, Trouble> {
    let limit = MOST + 1;
    let rows = work
        .rows(EXPORT, &[(&name, Type::TEXT), (&limit, Type::INT8)])
        .await?;
    let row = rows
        .first()
        .ok_or_else(|| Trouble::unknown("no row came back"))?;
    match (row.try_get("count")?, name) {
        (0_i64, Some(name)) => Err(Trouble::missing(format!("there is no manifest \"{name}\""))),
        (count, _) if count > MOST => Err(Trouble::invalid(format!(
            "there are more than {} manifests",
            grouped(MOST)
        ))
        .hint("Type: trax manifest export --format json")),
        _ => match row.try_get::<_, Option<&str>>("with_null_input")? {
            // A null member of a document counts as left out.
            Some(name) => Err(Trouble::invalid(format!(
                "manifest \"{name}\": its input is null, which no document can contain"
            ))
            .hint("Give it another: select trax.schedule('NAME', input => '{}')")),
            None => Ok(row.try_get("document")?),
        },
    }
}
