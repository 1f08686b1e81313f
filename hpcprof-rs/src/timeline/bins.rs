//! The timeline in bins of equal time, bounded whatever the number of threads: how many threads are in each
//! state, how many work on each logical track, what the threads with the most work do, where the critical
//! path is, and who has waited for whom.

use crate::catalogue::Catalogue;
use crate::catalogue::trace::{Edge, Slice};
use crate::error::Result;
use crate::model::tree::add_all;
use crate::timeline::Timeline;
use crate::timeline::slack::Near;
use crate::views::fold::FoldOptions;
use hpc_formats::trace::State;
use serde::Deserialize;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;

const BINS: i64 = 2000;
const TRACKS: usize = 40;
const THREADS: usize = 64;
/// Flows between the threads that are shown, those of the path first.
const FLOWS: usize = 2000;
/// A thread stands by if it works for less than this part of its time, and waits for the rest, as helpers of
/// libraries do. The first thread of a process does not.
const STANDING_BY: i64 = 100;
/// The states by index; the last one is that nothing is known.
const STATES: [&str; 5] = ["works", "waits", "idle", "spins", "unseen"];

fn index(state: Option<State>) -> usize {
    match state {
        Some(State::Works) => 0,
        Some(State::Waits) => 1,
        Some(State::Idle) => 2,
        Some(State::Spins) => 3,
        None | Some(State::Ended) => 4,
    }
}

/// Nanoseconds by bin.
type Row = Vec<i64>;

/// Process and ordinal of a thread.
type Owner = (i64, u32);

struct Own {
    owner: Owner,
    name: String,
    states: [Row; STATES.len()],
    /// Nanoseconds of work by track.
    tracks: Vec<i64>,
}

/// What there is of all threads.
struct All {
    /// Without the waiting of those that stand by.
    states: [Row; STATES.len()],
    /// Those with the most work, each with it.
    threads: Vec<(i64, Value)>,
    /// How many stand by, and what they work.
    standing_by: (u32, i64),
}

/// The timeline of a database as JSON; `None` without a trace. Counts of threads are in hundredths.
pub fn binned(catalogue: &Catalogue, options: FoldOptions) -> Result<Option<Value>> {
    let (mut end, mut count) = (0, 0);
    let mut last = None;
    catalogue.each_slice(|slice| {
        end = end.max(slice.end());
        count += u32::from(last.replace(slice.owner) != Some(slice.owner));
    })?;
    if end == 0 {
        return Ok(None);
    }
    let mut timeline = Timeline::read(catalogue, options)?;
    let edges = catalogue.edges()?;
    let mut path = Path { near: Near::path(&edges), bins: BTreeMap::new() };
    let width = (end + BINS - 1) / BINS;
    let bins = ((end + width - 1) / width) as usize;
    let empty = || vec![0; bins];
    let mut all = All { states: STATES.map(|_| empty()), threads: Vec::new(), standing_by: (0, 0) };
    let mut tracks: Vec<Row> = Vec::new();
    let mut own: Option<Own> = None;
    catalogue.each_slice(|slice| {
        if own.as_ref().is_none_or(|own| own.owner != slice.owner) {
            all.keep(own.take());
            let name = timeline.thread(&slice).map_or("", |thread| thread.name.as_str());
            let name = format!("{name} {}.{}", slice.owner.0, slice.owner.1);
            own = Some(Own { owner: slice.owner, name, states: STATES.map(|_| empty()), tracks: Vec::new() });
        }
        let Some(own) = &mut own else { return };
        let track = timeline.track(&slice);
        if let Some(track) = track {
            tracks.resize_with(tracks.len().max(track + 1), empty);
            own.tracks.resize(tracks.len(), 0);
            own.tracks[track] += slice.duration;
        }
        path.add(&slice, track, width);
        let state = index(slice.state);
        for (bin, time) in spread(&slice, width) {
            own.states[state][bin] += time;
            if let Some(track) = track {
                tracks[track][bin] += time;
            }
        }
    })?;
    all.keep(own);
    let All { states, threads, standing_by: (standing_by, their_work) } = all;
    let hundredths = |row: &Row| row.iter().map(|time| time * 100 / width).collect::<Vec<i64>>();
    let states: serde_json::Map<String, Value> =
        STATES.iter().zip(&states).map(|(name, row)| ((*name).to_owned(), json!(hundredths(row)))).collect();
    let mut named: Vec<(usize, String, &Row)> =
        timeline.names().enumerate().zip(&tracks).map(|((track, name), row)| (track, name, row)).collect();
    named.sort_by_key(|(_, _, row)| Reverse(row.iter().sum::<i64>()));
    let hidden = named.split_off(named.len().min(TRACKS)).len();
    let tracks = named.iter().map(|(track, name, row)| {
        let work = row.iter().sum::<i64>() as f64 * 1e-9;
        json!({ "track": track, "name": name, "work": work, "working": hundredths(row) })
    });
    Ok(Some(json!({
        "span": end as f64 * 1e-9,
        "bin": width as f64 * 1e-9,
        "threads": count,
        "states": states,
        "tracks": tracks.collect::<Vec<_>>(),
        "hidden_tracks": hidden,
        "standing_by": { "threads": standing_by, "work": their_work as f64 * 1e-9 },
        "path": path.runs(bins),
        "flows": flows(&edges, &threads, width),
        "of_threads": threads.into_iter().map(|(_, thread)| thread).collect::<Vec<_>>(),
    })))
}

/// The critical path: by bin its time by thread and track.
struct Path {
    near: Near,
    bins: BTreeMap<(usize, Owner, Option<usize>), i64>,
}

impl Path {
    /// Adds what of a slice is on the path.
    fn add(&mut self, slice: &Slice, track: Option<usize>, width: i64) {
        for (bin, time) in self.near.parts(slice).flat_map(|part| spread(&part, width)) {
            *self.bins.entry((bin, slice.owner, track)).or_default() += time;
        }
    }

    /// Of each bin in turn where most of the path is, and how many bins it is there: the thread, by process
    /// and ordinal, its track or -1, and the number of bins. A process of -1: nowhere.
    fn runs(&self, bins: usize) -> Vec<(i64, u32, i64, u64)> {
        let mut most = vec![(0, (-1, 0, -1)); bins];
        for ((bin, owner, track), time) in &self.bins {
            if *time > most[*bin].0 {
                most[*bin] = (*time, (owner.0, owner.1, track.map_or(-1, |track| track as i64)));
            }
        }
        // A thread that does not work is still where it was.
        for bin in 1..bins {
            let (before, own) = (most[bin - 1].1, &mut most[bin].1);
            if own.2 < 0 && (before.0, before.1) == (own.0, own.1) {
                own.2 = before.2;
            }
        }
        let runs = most.chunk_by(|a, b| a.1 == b.1);
        runs.map(|run| (run[0].1.0, run[0].1.1, run[0].1.2, run.len() as u64)).collect()
    }
}

/// Who has waited for whom, of the threads that are shown: from which thread and bin to which, and the kind.
fn flows(edges: &[Edge], threads: &[(i64, Value)], width: i64) -> Value {
    let shown: Vec<Owner> = threads.iter().filter_map(|(_, t)| Owner::deserialize(&t["id"]).ok()).collect();
    let known = |owner| shown.contains(owner);
    let between = edges.iter().filter(|e| e.to.0 != e.from.0 && known(&e.to.0) && known(&e.from.0));
    let flow = |e: &Edge| (e.on_path.is_none(), e.from.0, e.from.1 / width, e.to.0, e.to.1 / width);
    let flows: BTreeMap<_, &str> = between.map(|edge| (flow(edge), edge.kind.as_str())).collect();
    let all = flows.len();
    let flows = flows.into_iter().take(FLOWS);
    let flows =
        flows.map(|((other, from, begin, to, end), kind)| json!([from, begin, to, end, kind, !other]));
    json!({ "all": all, "shown": flows.collect::<Vec<_>>() })
}

/// The parts of a slice by bin.
fn spread(slice: &Slice, width: i64) -> impl Iterator<Item = (usize, i64)> + use<> {
    let (start, end) = (slice.start, slice.end());
    let bins = start / width..=(end - 1).max(start) / width;
    bins.map(move |bin| (bin as usize, end.min((bin + 1) * width) - start.max(bin * width)))
        .filter(|(_, time)| *time > 0)
}

impl All {
    /// Adds a thread, and keeps it unless others have more work: in each bin the state that it is in for
    /// longest, as pairs of a state and a number of bins.
    fn keep(&mut self, own: Option<Own>) {
        let Some(own) = own else { return };
        let sums = own.states.each_ref().map(|row| row.iter().sum::<i64>());
        let [work, waits, idle, spins, unseen] = sums;
        let stands_by = own.owner.1 > 1 && idle + spins == 0 && work * STANDING_BY < waits - unseen;
        if stands_by {
            self.standing_by = (self.standing_by.0 + 1, self.standing_by.1 + work);
        }
        let shown = if stands_by { 1 } else { STATES.len() };
        self.states.iter_mut().zip(&own.states).take(shown).for_each(|(all, own)| add_all(all, own));
        let mut runs: Vec<[i64; 2]> = Vec::new();
        for bin in 0..own.states[0].len() {
            let state = (0..STATES.len()).max_by_key(|state| (own.states[*state][bin], Reverse(*state)));
            let state = state.filter(|state| own.states[*state][bin] > 0).map_or(-1, |state| state as i64);
            match runs.last_mut().filter(|run| run[0] == state) {
                Some(run) => run[1] += 1,
                None => runs.push([state, 1]),
            }
        }
        let track = (0..own.tracks.len()).max_by_key(|track| (own.tracks[*track], Reverse(*track)));
        let thread = json!({ "id": own.owner, "name": own.name, "track": track, "runs": runs });
        self.threads.push((work, thread));
        self.threads.sort_by_key(|(work, _)| Reverse(*work));
        self.threads.truncate(THREADS);
    }
}
