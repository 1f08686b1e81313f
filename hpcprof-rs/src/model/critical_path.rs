//! The critical path of a process, with names of its places, and as a database has it.

use crate::model::hash::NumberedSet;
use hpc_formats::critical_path as path;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A procedure of a path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// Its name, and where it is declared.
    pub place: Arc<path::Place>,
    /// Whether it is the user's own, as marks are.
    pub is_user: bool,
}

/// A critical path. Threads are ordinals.
pub type CriticalPath = path::CriticalPath<Arc<path::Place>, Known>;

pub type Segment = path::Segment<Arc<path::Place>>;

pub type Start = path::Start<Arc<path::Place>>;

pub type Moment = path::Moment<Known>;

pub type Procedure = path::Procedure<Known>;

/// A path whose places are numbers; of procedures also whether they are the user's own.
type Numbered = path::CriticalPath<u32, (u32, bool)>;

/// JSON: the places, and the path with their numbers.
pub fn encode(path: &CriticalPath) -> String {
    let of_series = path.series.iter().flat_map(|moment| &moment.procedures);
    let of_procedures = path.procedures.iter().map(|p| &p.name).chain(of_series.map(|(known, _)| known));
    let of_procedures = of_procedures.map(|known| &known.place);
    let places: NumberedSet<&path::Place> = path.places().chain(of_procedures).map(|p| &**p).collect();
    let number = |place: Arc<path::Place>| places.get_index_of(&*place).unwrap_or(0) as u32;
    let mut numbered = path.clone().map(number, |known| (number(known.place), known.is_user));
    // A file may name a cause twice. The largest come first.
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    for (cause, edges) in numbered.quality.lost_edges {
        let sum = lost.entry(cause).or_default();
        *sum = sum.saturating_add(edges);
    }
    numbered.quality.lost_edges = lost.into_iter().collect();
    numbered.quality.lost_edges.sort_by_key(|(_, edges)| Reverse(*edges));
    serde_json::json!((Vec::from_iter(&places), numbered)).to_string()
}

/// Reads it; `None` if it is damaged.
pub fn decode(json: &str) -> Option<CriticalPath> {
    let (places, path): (Vec<path::Place>, Numbered) = serde_json::from_str(json).ok()?;
    let places: Vec<Arc<path::Place>> = places.into_iter().map(Arc::new).collect();
    let is_sound = {
        let series = path.series.iter().flat_map(|moment| &moment.procedures);
        let series = series.map(|((number, _), _)| number);
        let mut numbers = path.places().chain(path.procedures.iter().map(|p| &p.name.0)).chain(series);
        numbers.all(|number| (*number as usize) < places.len())
    };
    let place = |number: u32| Arc::clone(&places[number as usize]);
    let known = |(number, is_user)| Known { place: place(number), is_user };
    is_sound.then(|| path.map(place, known))
}
