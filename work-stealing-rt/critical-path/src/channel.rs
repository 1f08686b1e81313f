//! Channels: what travels beside the values, and back.
//!
//! One duty: the edges of a first-in-first-out channel. A receive waits for its send. If the channel is
//! bounded, a send waits for the receive that made room for it: send `i` of a channel of capacity `c` for
//! receive `i - c`. Oyama's paper omits these back-edges; without them the path of a fast producer beside a
//! slow consumer is too short.

use std::collections::VecDeque;

use crate::clock::Clock;
use crate::path::{Edge, Site};
use crate::thread::{Message, Thread};

/// The edges of a channel. Whoever owns it protects it, usually by the channel's own lock, so that sends and
/// receives come in the order of the values.
#[derive(Debug)]
pub struct Channel {
    messages: VecDeque<Message>,
    /// For each receive whose room no send has used yet.
    room: VecDeque<Message>,
    /// Sends that need no room by a receive; `None`: none ever does.
    free: Option<usize>,
}

impl Channel {
    /// A channel for any number of values, or, with a capacity, for at most so many. With capacity 0 a send
    /// ends when its value is received ([`Channel::sent`]).
    pub fn new(capacity: Option<usize>) -> Self {
        Channel {
            messages: VecDeque::new(),
            room: VecDeque::new(),
            free: capacity,
        }
    }

    /// The thread sends a value at `at`, when there is room for it.
    pub fn send<C: Clock>(&mut self, thread: &mut Thread<'_, C>, at: Site) {
        match &mut self.free {
            None => {}
            Some(0) => {
                if let Some(room) = self.room.pop_front() {
                    thread.receive(room, at, Edge::Channel);
                }
            }
            Some(free) => *free -= 1,
        }
        self.messages.push_back(thread.send(at));
    }

    /// The thread, which has sent a value through a channel of capacity 0, goes on at `at`: it has been
    /// received.
    pub fn sent<C: Clock>(&mut self, thread: &mut Thread<'_, C>, at: Site) {
        if let Some(room) = self.room.pop_front() {
            thread.receive(room, at, Edge::Channel);
        }
    }

    /// The thread has received a value at `at`. False: its send was not seen.
    pub fn receive<C: Clock>(&mut self, thread: &mut Thread<'_, C>, at: Site) -> bool {
        let message = self.messages.pop_front();
        let known = message.is_some();
        if let Some(message) = message {
            thread.receive(message, at, Edge::Channel);
        }
        if self.free.is_some() {
            self.room.push_back(thread.send(at));
        }
        known
    }

    /// Nobody uses the channel any more.
    pub fn close<C: Clock>(&mut self, thread: &mut Thread<'_, C>) {
        for message in self.messages.drain(..).chain(self.room.drain(..)) {
            thread.discard(message);
        }
    }
}
