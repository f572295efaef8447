//! Values of issue fields.

use super::shapes;
use crate::sim::call::{Call, Outcome};
use crate::sim::world::World;

/// `GET …/issues/{n}/issue-field-values`.
pub fn list(world: &mut World, call: &Call, repo: usize, number: u64) -> Outcome {
    call.takes_query(world, &["per_page", "page"])?;
    let repo = &world.repositories[repo];
    call.page(Some(repo.id), repo.issues[&number].fields.iter().map(shapes::field_value).collect())
}
