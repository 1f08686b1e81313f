//! Perfetto's format: a protocol buffer of packets. Each thread has a track of its call stacks, as slices in
//! slices, and one of its states; a counter says how many threads work, and one for each logical track (main,
//! parallel loops and regions, groups of threads) how many do there. Edges are flows between the tracks of
//! states, and the critical path is a track of its own. Names are sent once. A reduced trace has what is near
//! the critical path, and counters at some moments only.
//!
//! Source of the field numbers: `protos/perfetto/trace` of github.com/google/perfetto.

use crate::catalogue::Catalogue;
use crate::catalogue::trace::{Edge, Slice};
use crate::error::{Error, Result};
use crate::exports::stacks::clean;
use crate::model::hash::NumberedSet;
use crate::timeline::Timeline;
use crate::timeline::slack::Near;
use hpc_formats::trace::State;
use prost::Message;
use std::collections::BTreeMap;
use std::io::{self, Write};

#[derive(Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Message)]
struct TrackEvent {
    #[prost(int32, tag = "9")]
    r#type: i32,
    #[prost(uint64, optional, tag = "10")]
    name_iid: Option<u64>,
    #[prost(uint64, tag = "11")]
    track_uuid: u64,
    #[prost(int64, optional, tag = "30")]
    counter_value: Option<i64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    terminating_flow_ids: Vec<u64>,
}

#[derive(Message)]
struct InternedData {
    #[prost(message, repeated, tag = "2")]
    event_names: Vec<EventName>,
}

#[derive(Message)]
struct EventName {
    #[prost(uint64, tag = "1")]
    iid: u64,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Message)]
struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    uuid: u64,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
}

#[derive(Message)]
struct ProcessDescriptor {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(string, tag = "6")]
    process_name: String,
}

#[derive(Message)]
struct ThreadDescriptor {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(int32, tag = "2")]
    tid: i32,
    #[prost(string, tag = "5")]
    thread_name: String,
}

#[derive(Message)]
struct CounterDescriptor {
    #[prost(string, optional, tag = "6")]
    unit_name: Option<String>,
}

const BEGIN: i32 = 1;
const END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;
/// The only sequence of packets.
const SEQUENCE: u32 = 1;
const STATE_CLEARED: u32 = 1;
const NEEDS_STATE: u32 = 2;
/// The field of a trace that is a packet.
const PACKET: u32 = 1;
/// Moments at which a reduced trace has its counters.
const MOMENTS: i64 = 1000;

pub(super) fn write(
    timeline: &mut Timeline<'_>,
    (slices, edges): (&[Slice], &[Edge]),
    near: Option<&Near>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut writer = Writer { out, bytes: Vec::new(), names: NumberedSet::default() };
    writer.packet(Packet { sequence_flags: Some(STATE_CLEARED), ..Packet::default() })?;
    for own in slices.chunk_by(|a, b| a.owner == b.owner) {
        match near.map(|near| own.iter().flat_map(|slice| near.parts(slice)).collect::<Vec<_>>()) {
            Some(kept) if kept.is_empty() => {}
            kept => write_thread(timeline, kept.as_deref().unwrap_or(own), &mut writer)?,
        }
    }
    let end = slices.iter().map(Slice::end).max().unwrap_or(0);
    write_counters(timeline, slices, near.map_or(1, |_| end / MOMENTS + 1), &mut writer)?;
    write_path(edges, &mut writer)?;
    let between = edges.iter().filter(|e| !e.is_own() && (near.is_none() || e.on_path.is_some()));
    for (number, edge) in (1..).zip(between) {
        for ((owner, time), flow_ids, ends) in
            [(edge.from, vec![number], vec![]), (edge.to, vec![], vec![number])]
        {
            let event = TrackEvent { r#type: INSTANT, track_uuid: uuid(owner) | 1, ..TrackEvent::default() };
            let event = TrackEvent { flow_ids, terminating_flow_ids: ends, ..event };
            writer.track_event(time, event, Some(&edge.kind))?;
        }
    }
    Ok(())
}

/// All slices of a database, which has some.
pub(super) fn slices(catalogue: &Catalogue) -> Result<Vec<Slice>> {
    let mut slices = Vec::new();
    catalogue.each_slice(|slice| slices.push(slice))?;
    match slices.is_empty() {
        false => Ok(slices),
        true => Err(Error::Usage(format!(
            "{} has no trace, which is what Perfetto shows: measure with `hpcrun-rs --trace PROGRAM`",
            catalogue.path.display()
        ))),
    }
}

/// The track of a thread's calls; the next number is that of its states.
fn uuid((process, ordinal): (i64, u32)) -> u64 {
    (process as u64) << 33 | u64::from(ordinal) << 1
}

/// The stretches of the critical path, by thread.
fn write_path(edges: &[Edge], out: &mut Writer<'_>) -> io::Result<()> {
    let stretches = Catalogue::stretches(edges);
    let track = 1 << 62;
    if !stretches.is_empty() {
        let name = Some("critical path".to_owned());
        out.track(TrackDescriptor { uuid: track, name, ..TrackDescriptor::default() })?;
    }
    for ((process, ordinal), start, end) in stretches {
        out.event(start, track, BEGIN, Some(&format!("thread {process}.{ordinal}")))?;
        out.event(end, track, END, None)?;
    }
    Ok(())
}

fn write_thread(timeline: &Timeline<'_>, slices: &[Slice], out: &mut Writer<'_>) -> io::Result<()> {
    let (process, ordinal) = slices[0].owner;
    let (pid, process_uuid) = (process as i32, process as u64);
    let thread = timeline.thread(&slices[0]);
    let name = thread.map_or(String::new(), |thread| clean(&thread.name));
    let program = thread.map_or(String::new(), |t| format!("{} {}", clean(&t.program), t.pid));
    let uuid = uuid(slices[0].owner);
    out.track(TrackDescriptor {
        uuid: process_uuid,
        process: Some(ProcessDescriptor { pid, process_name: program }),
        ..TrackDescriptor::default()
    })?;
    // The kernel's ids are unique on a host only.
    let tid = pid.wrapping_shl(20) | ordinal as i32;
    out.track(TrackDescriptor {
        uuid,
        thread: Some(ThreadDescriptor { pid, tid, thread_name: format!("{name} {ordinal}") }),
        parent_uuid: Some(process_uuid),
        ..TrackDescriptor::default()
    })?;
    let state_uuid = uuid | 1;
    out.track(TrackDescriptor {
        uuid: state_uuid,
        name: Some("state".to_owned()),
        parent_uuid: Some(uuid),
        ..TrackDescriptor::default()
    })?;
    let (mut open, mut path, mut at) = (Vec::new(), Vec::new(), 0);
    for slice in slices {
        let (begin, end) = (slice.start, slice.end());
        let state = slice.state.map_or("unseen", State::name);
        out.event(begin, state_uuid, BEGIN, Some(state))?;
        out.event(end, state_uuid, END, None)?;
        path.clear();
        let context = timeline.context(slice);
        path.extend(std::iter::successors(context, |c| timeline.nodes[*c as usize].parent));
        path.reverse();
        let kept = match at == begin {
            true => open.iter().zip(&path).take_while(|(a, b)| a == b).count(),
            false => 0,
        };
        while open.len() > kept {
            open.pop();
            out.event(at, uuid, END, None)?;
        }
        for context in &path[kept..] {
            let name = clean(&timeline.name(timeline.nodes[*context as usize].label));
            out.event(begin, uuid, BEGIN, Some(&name))?;
            open.push(*context);
        }
        at = end;
    }
    (0..open.len()).try_for_each(|_| out.event(at, uuid, END, None))
}

/// How many threads work, in all and on each logical track, at each multiple of `distance`.
fn write_counters(
    timeline: &mut Timeline<'_>,
    slices: &[Slice],
    distance: i64,
    out: &mut Writer<'_>,
) -> io::Result<()> {
    let mut changes: BTreeMap<(i64, usize), i64> = BTreeMap::new();
    for slice in slices {
        let Some(track) = timeline.track(slice) else { continue };
        let [start, end] = [slice.start, slice.end()].map(|time| (time + distance - 1) / distance * distance);
        for counter in [0, track + 1] {
            *changes.entry((start, counter)).or_default() += 1;
            *changes.entry((end, counter)).or_default() -= 1;
        }
    }
    let names: Vec<String> = std::iter::once("n_working".to_owned()).chain(timeline.names()).collect();
    let uuid = |counter: usize| 1 << 63 | counter as u64;
    for (counter, name) in names.iter().enumerate() {
        out.track(TrackDescriptor {
            uuid: uuid(counter),
            name: Some(clean(name)),
            counter: Some(CounterDescriptor { unit_name: Some("threads".to_owned()) }),
            ..TrackDescriptor::default()
        })?;
    }
    let mut working = vec![0; names.len()];
    for ((time, counter), change) in changes.into_iter().filter(|(_, change)| *change != 0) {
        working[counter] += change;
        out.packet(Packet {
            timestamp: Some(time.max(0) as u64),
            track_event: Some(TrackEvent {
                r#type: COUNTER,
                track_uuid: uuid(counter),
                counter_value: Some(working[counter]),
                ..TrackEvent::default()
            }),
            ..Packet::default()
        })?;
    }
    Ok(())
}

struct Writer<'a> {
    out: &'a mut dyn Write,
    bytes: Vec<u8>,
    names: NumberedSet<String>,
}

impl Writer<'_> {
    fn packet(&mut self, packet: Packet) -> io::Result<()> {
        let packet = Packet { trusted_packet_sequence_id: SEQUENCE, ..packet };
        prost::encoding::message::encode(PACKET, &packet, &mut self.bytes);
        self.out.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    fn track(&mut self, track: TrackDescriptor) -> io::Result<()> {
        self.packet(Packet { track_descriptor: Some(track), ..Packet::default() })
    }

    /// A slice begins or ends.
    fn event(&mut self, time: i64, track_uuid: u64, r#type: i32, name: Option<&str>) -> io::Result<()> {
        self.track_event(time, TrackEvent { r#type, track_uuid, ..TrackEvent::default() }, name)
    }

    fn track_event(&mut self, time: i64, event: TrackEvent, name: Option<&str>) -> io::Result<()> {
        let mut interned_data = None;
        let name_iid = name.map(|name| match self.names.get_index_of(name) {
            Some(known) => known as u64 + 1,
            None => {
                let iid = self.names.insert_full(name.to_owned()).0 as u64 + 1;
                let event_names = vec![EventName { iid, name: name.to_owned() }];
                interned_data = Some(InternedData { event_names });
                iid
            }
        });
        self.packet(Packet {
            timestamp: Some(time.max(0) as u64),
            track_event: Some(TrackEvent { name_iid, ..event }),
            interned_data,
            sequence_flags: Some(NEEDS_STATE),
            ..Packet::default()
        })
    }
}
