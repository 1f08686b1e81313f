//! Which strand belongs to a message that a receive has got.
//!
//! Of messages from one sender in one communicator with one tag, the first that was sent goes to the first
//! receive that was posted, whichever receive the program waits for first. So a receive takes the strand
//! after as many others as there are receives that were posted before it, took such a message, and have not
//! got their strand yet. Whether an earlier receive with a wildcard did so is known when it is complete;
//! until then the strand is unknown, and so it stays: the receive remains as a *debt*, by which later ones
//! find theirs, and which takes its strand in its turn without using it.
//!
//! A strand leaves before its message does. One that is not there when its message is comes never, as of a
//! message that was sent by a function that is not observed, and no later message waits for it.
//!
//! Threads that receive or send such messages at the same time, in no order of the program's, may take each
//! other's strands.

use hpcrun_abi::RemoteStrand;
use std::collections::VecDeque;

/// A strand that was sent beside a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// The communicator's number, equal at both ends.
    pub(crate) comm: u64,
    pub(crate) tag: i32,
    pub(crate) strand: RemoteStrand,
}

impl Arrived {
    #[inline]
    fn is_of(&self, message: &Message) -> bool {
        (self.comm, self.tag) == (message.comm, message.tag)
    }
}

/// A message, as a completed receive knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) comm: u64,
    /// Rank of the sender in the job.
    pub(crate) source: u32,
    pub(crate) tag: i32,
}

/// What a receive accepts; `None` is a wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) comm: u64,
    pub(crate) source: Option<u32>,
    pub(crate) tag: Option<i32>,
}

impl Wanted {
    fn accepts(&self, message: &Message) -> bool {
        self.comm == message.comm
            && self.source.is_none_or(|source| source == message.source)
            && self.tag.is_none_or(|tag| tag == message.tag)
    }

    /// The message, if the receive accepts only such ones.
    fn exact(&self) -> Option<Message> {
        let comm = self.comm;
        let exact = self.source.zip(self.tag);
        exact.map(|(source, tag)| Message { comm, source, tag })
    }
}

/// A receive that was posted and has not got its strand, by its number.
#[derive(Debug)]
enum Posted {
    Wanted(u64, Wanted),
    /// It is owed a strand that nobody will use; whether its message is there.
    Debt(Message, bool),
}

impl Posted {
    fn is(&self, number: u64) -> bool {
        matches!(self, Posted::Wanted(known, _) if *known == number)
    }
}

/// What is found for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Strand,
    /// It cannot be told which one is the message's.
    Ambiguous,
    /// It is not there: the sender is not observed, or there was no room.
    Missing,
}

/// Where strands come from, and what else is known of receives.
pub(crate) trait Strands {
    /// The next strand that has come from a rank.
    fn arrival(&mut self, source: u32) -> Option<&Arrived>;
    /// The message of a posted receive, by its number, if it is complete; `Err`: it may or may not be.
    fn completed(&mut self, number: u64) -> Result<Message, ()>;
}

/// The receives and strands of a process.
#[derive(Debug)]
pub(crate) struct Matching {
    /// By rank: strands that were taken out of the ring, for messages that are not received yet.
    arrived: Vec<VecDeque<Arrived>>,
    posted: Vec<Posted>,
    next: u64,
}

impl Matching {
    pub(crate) fn new(ranks: usize) -> Matching {
        Matching { arrived: vec![VecDeque::new(); ranks], posted: Vec::new(), next: 0 }
    }

    /// A receive is posted; its number.
    pub(crate) fn post(&mut self, wanted: Wanted) -> u64 {
        self.next += 1;
        self.posted.push(Posted::Wanted(self.next, wanted));
        self.next
    }

    /// The receive got no message, and will not.
    pub(crate) fn withdraw(&mut self, number: u64) {
        self.posted.retain(|posted| !posted.is(number));
    }

    /// Nobody will ask for the receive's strand. False: it is not known which one that will be.
    pub(crate) fn abandon(&mut self, number: u64) -> bool {
        let mut found = self.posted.iter_mut().filter(|posted| posted.is(number));
        found.all(|posted| match posted {
            Posted::Wanted(_, wanted) => {
                let debt = wanted.exact().map(|message| Posted::Debt(message, false));
                debt.map(|debt| *posted = debt).is_some()
            }
            Posted::Debt(..) => true,
        })
    }

    /// Calls `merge` with the strand of a message that a receive has got: a posted one, or one that is posted
    /// now, after all others.
    #[inline]
    pub(crate) fn take(
        &mut self,
        number: Option<u64>,
        message: Message,
        world: &mut impl Strands,
        merge: impl FnOnce(&RemoteStrand),
    ) -> Found {
        let is_only = match self.posted[..] {
            [] => true,
            [ref one] => number.is_some_and(|number| one.is(number)),
            _ => false,
        };
        if is_only && self.arrived[message.source as usize].is_empty() {
            // As nearly always.
            if let Some(arrived) = world.arrival(message.source) {
                if arrived.is_of(&message) {
                    self.posted.clear();
                    merge(&arrived.strand);
                    return Found::Strand;
                }
                self.arrived[message.source as usize].push_back(*arrived);
            }
        }
        let at = number.and_then(|number| self.posted.iter().position(|p| p.is(number)));
        let found = match self.place(at, &message, world) {
            Err(()) => Found::Ambiguous,
            Ok(None) => Found::Missing,
            Ok(Some(place)) => {
                let arrived = self.arrived[message.source as usize].remove(place);
                arrived.map_or(Found::Missing, |arrived| {
                    merge(&arrived.strand);
                    Found::Strand
                })
            }
        };
        match (found, at) {
            (Found::Ambiguous, Some(at)) => self.posted[at] = Posted::Debt(message, true),
            (Found::Ambiguous, None) => self.posted.push(Posted::Debt(message, true)),
            (_, Some(at)) => drop(self.posted.remove(at)),
            (_, None) => {}
        }
        self.settle(world);
        found
    }

    /// The strand of a message that was found, and will be received later. Then it counts if it is unknown.
    pub(crate) fn peek(&mut self, message: Message, world: &mut impl Strands) -> Option<&RemoteStrand> {
        let place = self.place(None, &message, world).ok()??;
        Some(&self.arrived[message.source as usize].get(place)?.strand)
    }

    /// Where the strand of the message is that the receive at a place has got; `None` if it is not there,
    /// `Err` if it cannot be told.
    fn place(
        &mut self,
        at: Option<usize>,
        message: &Message,
        world: &mut impl Strands,
    ) -> Result<Option<usize>, ()> {
        let mut ahead = 0;
        for earlier in &self.posted[..at.unwrap_or(self.posted.len())] {
            let took = match earlier {
                Posted::Debt(debt, _) => debt == message,
                Posted::Wanted(_, wanted) if !wanted.accepts(message) => false,
                // MPI gives a message to the first receive that accepts it, so this one has got another.
                Posted::Wanted(_, wanted) if wanted.exact().is_some() => true,
                Posted::Wanted(number, _) => world.completed(*number)? == *message,
            };
            ahead += usize::from(took);
        }
        let arrived = &mut self.arrived[message.source as usize];
        let (mut place, mut seen) = (0, 0);
        loop {
            while let Some(strand) = arrived.get(place) {
                if strand.is_of(message) {
                    if seen == ahead {
                        return Ok(Some(place));
                    }
                    seen += 1;
                }
                place += 1;
            }
            let Some(next) = world.arrival(message.source) else {
                return Ok(None);
            };
            arrived.push_back(*next);
        }
    }

    /// Gives debts their strands.
    fn settle(&mut self, world: &mut impl Strands) {
        let mut at = 0;
        while let Some(posted) = self.posted.get(at) {
            if let Posted::Debt(debt, is_there) = *posted {
                let place = self.place(Some(at), &debt, world);
                if let Ok(Some(place)) = place {
                    self.arrived[debt.source as usize].remove(place);
                }
                if matches!(place, Ok(Some(_))) || is_there && place == Ok(None) {
                    self.posted.remove(at);
                    continue;
                }
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One sender beside a library that matches as MPI does: each message goes to the first posted receive
    /// that accepts it, or waits.
    #[derive(Default)]
    struct Model {
        /// Strands on their way: of messages from ranks 0 and 1.
        sent: [VecDeque<Arrived>; 2],
        arrival: Arrived,
        /// Messages that no receive accepts yet, with the number of their strand.
        unexpected: Vec<(Message, u32)>,
        receives: Vec<Receive>,
        next: u32,
        /// A pending receive tells whether it is complete.
        tells: bool,
    }

    struct Receive {
        number: u64,
        wanted: Wanted,
        got: Option<(Message, u32)>,
    }

    impl Strands for Model {
        fn arrival(&mut self, source: u32) -> Option<&Arrived> {
            self.arrival = self.sent[source as usize].pop_front()?;
            Some(&self.arrival)
        }

        fn completed(&mut self, number: u64) -> Result<Message, ()> {
            let receive = self.receives.iter().find(|r| r.number == number);
            let got = receive.and_then(|r| r.got).filter(|_| self.tells);
            got.map(|(message, _)| message).ok_or(())
        }
    }

    impl Model {
        fn send(&mut self, message: Message) {
            self.next += 1;
            let strand = RemoteStrand { export: self.next, ..RemoteStrand::default() };
            let Message { comm, source, tag } = message;
            self.sent[source as usize].push_back(Arrived { comm, tag, strand });
            let accepts = |r: &&mut Receive| r.got.is_none() && r.wanted.accepts(&message);
            match self.receives.iter_mut().find(accepts) {
                Some(receive) => receive.got = Some((message, self.next)),
                None => self.unexpected.push((message, self.next)),
            }
        }

        fn post(&mut self, number: u64, wanted: Wanted) {
            let found = self.unexpected.iter().position(|(m, _)| wanted.accepts(m));
            let got = found.map(|at| self.unexpected.remove(at));
            self.receives.push(Receive { number, wanted, got });
        }
    }

    /// Random sends and receives, waited for in any order: a strand that is found is always the right one,
    /// without wildcards it is always found, and in the end none is left.
    #[test]
    fn strands_are_those_of_the_messages() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 33) % bound
        };
        let (mut ambiguous, mut found, mut got) = (0, 0, 0);
        for round in 0..400 {
            let (wildcards, tells) = (round % 4 > 0, round % 4 > 1);
            let mut model = Model { tells, ..Model::default() };
            let mut matching = Matching::new(2);
            for step in 0..120 {
                let (source, tag) = (below(2) as u32, below(2) as i32);
                let message = Message { comm: below(2), source, tag };
                match below(3) {
                    0 if step < 60 => model.send(message),
                    1 if step < 60 => {
                        let wanted = Wanted {
                            comm: message.comm,
                            source: Some(source).filter(|_| !wildcards || below(3) > 0),
                            tag: Some(tag).filter(|_| !wildcards || below(3) > 0),
                        };
                        let number = matching.post(wanted);
                        model.post(number, wanted);
                    }
                    _ => {
                        let complete = |r: &Receive| r.got.is_some();
                        let count = model.receives.iter().filter(|r| complete(r)).count() as u64;
                        let Some(chosen) = count.checked_sub(1).map(|last| below(last + 1)) else {
                            continue;
                        };
                        let mut places = model.receives.iter().enumerate();
                        let nth = places.by_ref().filter(|(_, r)| complete(r)).nth(chosen as usize);
                        let at = nth.expect("there are so many").0;
                        let receive = model.receives.remove(at);
                        let (message, strand) = receive.got.expect("it is complete");
                        let merge = |strand: &RemoteStrand| got = strand.export;
                        match matching.take(Some(receive.number), message, &mut model, merge) {
                            Found::Strand => {
                                assert_eq!(got, strand);
                                found += 1;
                            }
                            Found::Ambiguous => {
                                assert!(wildcards);
                                ambiguous += 1;
                            }
                            Found::Missing => panic!("every strand was sent before its message"),
                        }
                    }
                }
            }
            while let Some(receive) = model.receives.pop() {
                match receive.got {
                    Some((message, _)) => {
                        matching.take(Some(receive.number), message, &mut model, |_| ());
                    }
                    None => matching.withdraw(receive.number),
                }
            }
            for (message, strand) in std::mem::take(&mut model.unexpected) {
                let merge = |of: &RemoteStrand| got = of.export;
                let found = matching.take(None, message, &mut model, merge);
                assert_eq!((found, got), (Found::Strand, strand));
            }
            assert!(matching.posted.is_empty(), "{:?}", matching.posted);
            assert!(matching.arrived.iter().all(VecDeque::is_empty));
            assert!(model.sent.iter().all(VecDeque::is_empty));
        }
        assert!(found > 5 * ambiguous && ambiguous > 100, "{found} {ambiguous}");
    }

    #[test]
    fn a_strand_that_never_comes_shifts_no_later_one() {
        let mut model = Model::default();
        let mut matching = Matching::new(2);
        let message = Message { comm: 1, source: 0, tag: 5 };
        let take = |matching: &mut Matching, model: &mut Model| {
            let mut got = 0;
            let found = matching.take(None, message, model, |strand| got = strand.export);
            (found, got)
        };
        for round in 1..4 {
            assert_eq!(take(&mut matching, &mut model).0, Found::Missing);
            model.send(message);
            assert_eq!(take(&mut matching, &mut model), (Found::Strand, round));
        }
        let freed = matching.post(Wanted { comm: 1, source: Some(0), tag: Some(5) });
        assert!(matching.abandon(freed));
        model.send(message);
        model.send(message);
        assert_eq!(take(&mut matching, &mut model), (Found::Strand, 5));
    }
}
