//! The linear sweep over a range of x86-64 code: its instructions, and those that transfer control.
//!
//! Input: the bytes of a range, and what lies behind them. First lengths and classes of all
//! instructions are found ([`super::quick`]) without a look at what they do: each begins where the one
//! before ends, so a long range is read from its start and from its middle at once, which the
//! processor does at the same time; the two soon agree on where instructions begin. Then the few that
//! matter are read one by one. After bytes that are no instruction the sweep goes on with the next
//! one. Invariant: the same transfers as from a full decoder alone; a test compares them.

use super::flow::{Decoded, Flow, Transfer};
use super::quick::{self, Kind};
use super::x86;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

/// Instructions up to a jump, itself included, that are searched for what leads up to it.
pub(super) const WINDOW: usize = 24;

/// A `lea` of an address relative to the instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lea {
    /// Offset of the instruction.
    pub(super) offset: u32,
    pub(super) register: Register,
    pub(super) address: u64,
}

/// A jump whose targets only a table tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pending {
    /// Index of its transfer.
    pub(super) transfer: usize,
    /// Offsets of the instructions before it, the jump last; `u32::MAX` before the range's start.
    pub(super) window: [u32; WINDOW],
}

/// What a sweep finds; reused from range to range.
#[derive(Debug, Default)]
pub(super) struct Swept {
    all: Instructions,
    /// What was read from the middle of the range on.
    second: Instructions,
    pub(super) leas: Vec<Lea>,
    pub(super) pending: Vec<Pending>,
}

impl Swept {
    /// Adds the constants of eight bytes that are loaded into registers (`movabs`), which in the large code model
    /// are addresses; returns whether there are any.
    pub(super) fn add_constants(&mut self, range: Range<'_>) -> bool {
        let before = self.leas.len();
        for offset in &self.all.starts {
            let window = range.window(*offset as usize);
            let [prefix @ 0x48..=0x4f, code @ 0xb8..=0xbf, rest @ ..] = window else {
                continue;
            };
            if let Some(constant) = rest.first_chunk() {
                let register = code & 7 | (prefix & 1) << 3;
                self.leas.push(Lea {
                    offset: *offset,
                    register: x86::GENERAL[usize::from(register) % x86::GENERAL.len()],
                    address: u64::from_le_bytes(*constant),
                });
            }
        }
        self.leas.sort_by_key(|lea| lea.offset);
        self.leas.len() > before
    }
}

/// Consecutive instructions.
#[derive(Debug, Default)]
struct Instructions {
    /// Their offsets.
    starts: Vec<u32>,
    /// Those that are not plain: index in `starts`, and class.
    events: Vec<(u32, u8)>,
    /// What comes next.
    block: Block,
}

/// A range of code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range<'a> {
    /// Its bytes.
    pub(crate) bytes: &'a [u8],
    /// The same, and what follows.
    pub(crate) all: &'a [u8],
    /// Address of the first one.
    pub(crate) address: u64,
}

impl<'a> Range<'a> {
    /// The bytes at an offset as far as instructions go; what is not there is zero.
    fn window(&self, offset: usize) -> [u8; quick::WINDOW] {
        let rest = self.all.get(offset..).unwrap_or(&[]);
        rest.first_chunk().copied().unwrap_or_else(|| {
            let mut window = [0; quick::WINDOW];
            window[..rest.len()].copy_from_slice(rest);
            window
        })
    }

    /// The full decoder.
    pub(super) fn decoder(self) -> Full<'a> {
        Full {
            decoder: Decoder::with_ip(64, self.bytes, self.address, DecoderOptions::NONE),
            address: self.address,
        }
    }
}

/// The full decoder of a range; it takes a while to make.
pub(super) struct Full<'a> {
    decoder: Decoder<'a>,
    address: u64,
}

impl Full<'_> {
    /// The instruction at an offset within the range.
    pub(super) fn decode(&mut self, offset: usize) -> Instruction {
        // Within the bytes, so that it does not fail.
        let _ = self.decoder.set_position(offset);
        self.decoder
            .set_ip(self.address.wrapping_add(offset as u64));
        self.decoder.decode()
    }
}

/// Sweeps over a range and appends its transfers of control, tables not yet resolved.
pub(super) fn sweep(range: Range<'_>, swept: &mut Swept, out: &mut Decoded) {
    swept.leas.clear();
    swept.pending.clear();
    let mut full = range.decoder();
    swept.all.find(range, &mut full, &mut swept.second);
    let mut reader = Reader {
        range,
        full,
        starts: &swept.all.starts,
        leas: &mut swept.leas,
        pending: &mut swept.pending,
        out,
        stopped: false,
    };
    let mut next = 0;
    for (index, class) in &swept.all.events {
        reader.plain(next..*index as usize);
        reader.event(*index as usize, *class);
        next = *index as usize + 1;
    }
    reader.plain(next..swept.all.starts.len());
}

/// Instructions that are noted at once: blocks of a fixed size need no checks of bounds.
const BLOCK: usize = 128;

/// Instructions that are not in the list yet.
#[derive(Debug)]
struct Block {
    starts: [u32; BLOCK],
    count: usize,
    events: [(u32, u8); BLOCK],
    special: usize,
}

impl Default for Block {
    fn default() -> Self {
        Block {
            starts: [0; BLOCK],
            count: 0,
            events: [(0, 0); BLOCK],
            special: 0,
        }
    }
}

impl Block {
    /// Reads the instruction at an offset and returns that of the next one. There must be room.
    #[inline(always)]
    fn read(&mut self, range: Range<'_>, full: &mut Full<'_>, at: usize) -> usize {
        let window = range.all.get(at..).and_then(<[u8]>::first_chunk);
        let (mut size, mut class) = match window {
            Some(window) => quick::head(window),
            None => (0, quick::UNKNOWN),
        };
        if class == quick::UNKNOWN || at + size as usize > range.bytes.len() {
            class = quick::UNKNOWN;
            size = full.decode(at).len().max(1) as u32;
        }
        self.starts[self.count % BLOCK] = at as u32;
        self.events[self.special % BLOCK] = (self.count as u32, class);
        self.special += usize::from(class != quick::PLAIN);
        self.count += 1;
        at + size as usize
    }
}

impl Instructions {
    /// Finds those of a range; `second` is room to work in.
    fn find(&mut self, range: Range<'_>, full: &mut Full<'_>, second: &mut Instructions) {
        /// Shorter ranges are not worth two beginnings.
        const SHORT: usize = 256;
        self.clear();
        let length = range.bytes.len();
        if length < SHORT {
            self.read(range, full, 0, length);
            return;
        }
        second.clear();
        let middle = length / 2;
        let (mut at, mut later) = (0, middle);
        while at < middle && later < length {
            let (block, later_block) = (&mut self.block, &mut second.block);
            while block.count < BLOCK && at < middle && later < length {
                at = block.read(range, full, at);
                later = later_block.read(range, full, later);
            }
            self.take();
            second.take();
        }
        at = self.read(range, full, at, middle);
        second.read(range, full, later, length);
        // They agree from the first offset on where both have an instruction.
        let mut joint = 0;
        while at < length {
            joint += second.starts[joint..].partition_point(|s| (*s as usize) < at);
            if second.starts.get(joint).is_some_and(|s| *s as usize == at) {
                self.append(second, joint);
                return;
            }
            at = self.read(range, full, at, at + 1);
        }
    }

    fn clear(&mut self) {
        self.starts.clear();
        self.events.clear();
    }

    /// Reads instructions from an offset on, up to another; returns that of the next one.
    fn read(&mut self, range: Range<'_>, full: &mut Full<'_>, mut at: usize, end: usize) -> usize {
        while at < end {
            while self.block.count < BLOCK && at < end {
                at = self.block.read(range, full, at);
            }
            self.take();
        }
        at
    }

    /// Empties the block.
    fn take(&mut self) {
        let block = &mut self.block;
        let first = self.starts.len() as u32;
        self.starts.extend_from_slice(&block.starts[..block.count]);
        let events = block.events[..block.special].iter();
        self.events
            .extend(events.map(|(index, class)| (first + index, *class)));
        (block.count, block.special) = (0, 0);
    }

    /// Appends the instructions of `other` from index `from` on.
    fn append(&mut self, other: &Instructions, from: usize) {
        let first = self.starts.len() as u32;
        self.starts.extend_from_slice(&other.starts[from..]);
        let from = from as u32;
        let events = other.events.iter().filter(|(index, _)| *index >= from);
        self.events
            .extend(events.map(|(index, class)| (first + index - from, *class)));
    }
}

/// Reads the instructions that matter, in their order.
struct Reader<'a> {
    range: Range<'a>,
    full: Full<'a>,
    starts: &'a [u32],
    leas: &'a mut Vec<Lea>,
    pending: &'a mut Vec<Pending>,
    out: &'a mut Decoded,
    /// Whether control cannot come from the instruction before.
    stopped: bool,
}

impl Reader<'_> {
    fn end_of(&self, index: usize) -> u32 {
        let next = self.starts.get(index + 1).copied();
        next.unwrap_or(self.range.bytes.len() as u32)
    }

    /// Plain instructions: where nothing falls into them, the first ones may be padding.
    fn plain(&mut self, indices: std::ops::Range<usize>) {
        for index in indices {
            if !self.stopped {
                return;
            }
            if quick::may_pad(&self.range.window(self.starts[index] as usize)) {
                self.slow(index);
            } else {
                self.stopped = false;
            }
        }
    }

    fn event(&mut self, index: usize, class: u8) {
        if class == quick::UNKNOWN {
            return self.slow(index);
        }
        let offset = self.starts[index];
        let window = self.range.window(offset as usize);
        let end = self.end_of(index);
        let kind = quick::kind(class, &window, end - offset);
        let next = self.range.address.wrapping_add(u64::from(end));
        let far = |distance: i32| next.wrapping_add_signed(i64::from(distance));
        let flow = match kind {
            Kind::Plain => return self.plain(index..index + 1),
            Kind::Nop if self.stopped => Flow::Padding,
            Kind::Nop => return,
            Kind::Lea(register, distance) => {
                let register = x86::GENERAL[usize::from(register) % x86::GENERAL.len()];
                return self.lea(offset, register, far(distance));
            }
            Kind::Jump(distance) => Flow::Jump(far(distance)),
            Kind::Branch(distance) => Flow::Branch(far(distance)),
            Kind::Call(distance) => Flow::Call(far(distance)),
            Kind::CallThrough(distance) => Flow::CallThrough(far(distance)),
            Kind::CallAnywhere => Flow::CallAnywhere,
            Kind::JumpThrough(distance) => Flow::JumpThrough(far(distance)),
            Kind::JumpAnywhere => Flow::Indirect,
            Kind::Return => Flow::Return,
            Kind::Stop => Flow::Stop,
        };
        self.flow(index, flow);
    }

    /// By the full decoder.
    fn slow(&mut self, index: usize) {
        let offset = self.starts[index];
        let instruction = self.full.decode(offset as usize);
        let code = instruction.code();
        let flow = match code.flow_control() {
            FlowControl::Next | FlowControl::XbeginXabortXend => {
                let padding = self.stopped && is_padding(&instruction);
                next(&instruction).or(padding.then_some(Flow::Padding))
            }
            control => transfer(control, &instruction),
        };
        match flow {
            Some(flow) => self.flow(index, flow),
            None if code == Code::Lea_r64_m && instruction.is_ip_rel_memory_operand() => {
                let address = instruction.ip_rel_memory_address();
                self.lea(offset, instruction.op0_register(), address);
            }
            None => self.stopped = false,
        }
    }

    fn lea(&mut self, offset: u32, register: Register, address: u64) {
        self.leas.push(Lea {
            offset,
            register,
            address,
        });
        self.stopped = false;
    }

    fn flow(&mut self, index: usize, flow: Flow) {
        let (offset, end) = (self.starts[index], self.end_of(index));
        let flow = match flow {
            Flow::Call(to) if self.catches_speculation(end, to) => Flow::Jump(to),
            flow => flow,
        };
        let length = (end - offset) as u8;
        // Padding is one transfer, whatever the number of its instructions.
        match self.out.transfers.last_mut() {
            Some(last) if flow == Flow::Padding && last.flow == flow && last.end == offset => {
                last.end = end;
                last.length = last.length.saturating_add(length);
                return;
            }
            _ => {}
        }
        if flow == Flow::Indirect {
            let before = |i: usize| (index + 1 + i).checked_sub(WINDOW);
            self.pending.push(Pending {
                transfer: self.out.transfers.len(),
                window: std::array::from_fn(|i| before(i).map_or(u32::MAX, |at| self.starts[at])),
            });
        }
        self.stopped = match flow {
            Flow::Branch(_) => false,
            call if call.is_call() => false,
            Flow::Padding => self.stopped,
            _ => true,
        };
        self.out.transfers.push(Transfer { end, length, flow });
    }
}

impl Reader<'_> {
    /// Whether a call of what lies just behind it, which ends at `end`, is a retpoline's: what it returns to is a
    /// trap for speculation that no program comes to, and what is called replaces the return address.
    fn catches_speculation(&self, end: u32, to: u64) -> bool {
        /// Bytes that the trap takes, padding included.
        const MOST: u64 = 32;
        let next = self.range.address.wrapping_add(u64::from(end));
        let distance = to.wrapping_sub(next);
        let is_near = distance > 0 && distance <= MOST;
        is_near
            && matches!(
                self.range.window(end as usize),
                // `pause`, `lfence`, `int3`.
                [0xf3, 0x90, ..] | [0x0f, 0xae, 0xe8, ..] | [0xcc, ..]
            )
    }
}

/// Transfers that the decoder's tables count as plain instructions.
fn next(instruction: &Instruction) -> Option<Flow> {
    match instruction.code() {
        Code::INVALID | Code::Hlt => Some(Flow::Stop),
        Code::Xbegin_rel16 | Code::Xbegin_rel32 => {
            Some(Flow::Branch(instruction.near_branch_target()))
        }
        _ => None,
    }
}

fn transfer(control: FlowControl, instruction: &Instruction) -> Option<Flow> {
    let near = instruction.op0_kind() == OpKind::NearBranch64;
    let through = instruction.is_ip_rel_memory_operand();
    Some(match control {
        FlowControl::UnconditionalBranch if near => Flow::Jump(instruction.near_branch_target()),
        FlowControl::ConditionalBranch if near => Flow::Branch(instruction.near_branch_target()),
        FlowControl::Call if near => Flow::Call(instruction.near_branch_target()),
        FlowControl::IndirectCall if through => {
            Flow::CallThrough(instruction.ip_rel_memory_address())
        }
        FlowControl::IndirectCall => Flow::CallAnywhere,
        FlowControl::IndirectBranch if through => {
            Flow::JumpThrough(instruction.ip_rel_memory_address())
        }
        FlowControl::IndirectBranch => Flow::Indirect,
        FlowControl::Return => Flow::Return,
        FlowControl::Interrupt if instruction.code() == Code::Int3 => Flow::Stop,
        FlowControl::Exception
        | FlowControl::UnconditionalBranch
        | FlowControl::ConditionalBranch => Flow::Stop,
        // Calls and system calls come back.
        _ => return None,
    })
}

fn is_padding(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Nop => true,
        // `xchg ax, ax` and `lea rsi, [rsi]`: older forms.
        Mnemonic::Xchg => instruction.op0_register() == instruction.op1_register(),
        Mnemonic::Lea => {
            instruction.memory_displacement64() == 0
                && instruction.memory_index() == Register::None
                && instruction.memory_base() == instruction.op0_register()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const ADDRESS: u64 = 0x4000_0000;

    /// What a sweep finds.
    fn swept(bytes: &[u8], length: usize) -> (Vec<Transfer>, Vec<Lea>, Vec<Pending>) {
        let range = Range {
            bytes: &bytes[..length],
            all: bytes,
            address: ADDRESS,
        };
        let (mut swept, mut out) = (Swept::default(), Decoded::default());
        out.start(length);
        sweep(range, &mut swept, &mut out);
        (out.transfers, swept.leas, swept.pending)
    }

    /// The same by the full decoder alone.
    fn slowly(bytes: &[u8], length: usize) -> (Vec<Transfer>, Vec<Lea>, Vec<Pending>) {
        let range = Range {
            bytes: &bytes[..length],
            all: bytes,
            address: ADDRESS,
        };
        let mut starts = Vec::new();
        let mut at = 0;
        while at < length {
            starts.push(at as u32);
            at += range.decoder().decode(at).len();
        }
        let (mut leas, mut pending, mut out) = (Vec::new(), Vec::new(), Decoded::default());
        let mut reader = Reader {
            range,
            full: range.decoder(),
            starts: &starts,
            leas: &mut leas,
            pending: &mut pending,
            out: &mut out,
            stopped: false,
        };
        for index in 0..starts.len() {
            reader.slow(index);
        }
        (out.transfers, leas, pending)
    }

    /// The code of this program.
    fn own_code() -> Vec<u8> {
        use object::{Object as _, ObjectSection as _};
        let path = std::env::current_exe().expect("a path");
        let data = std::fs::read(path).expect("readable");
        let elf = object::File::parse(&*data).expect("an ELF file");
        if elf.architecture() != object::Architecture::X86_64 {
            return Vec::new();
        }
        let text = elf.section_by_name(".text").expect("code");
        text.data().expect("in the file").to_vec()
    }

    #[test]
    fn code_is_what_the_full_decoder_says() {
        let code = own_code();
        let code = &code[..code.len().min(1 << 20)];
        for (i, part) in code.chunks(5000).enumerate() {
            // Ranges end within instructions, too, and with code or nothing behind them.
            let length = part.len() - (i % 40).min(part.len());
            assert_eq!(swept(part, length), slowly(part, length), "part {i}");
        }
    }

    #[test]
    fn anything_is_what_the_full_decoder_says() {
        let mut source = Random::new();
        let mut random = || source.next();
        let common = [
            0xc3, 0x90, 0x66, 0x0f, 0x1f, 0xeb, 0xe8, 0xff, 0x48, 0x8d, 0xcc, 0x74,
        ];
        for round in 0..400 {
            let bytes: Vec<u8> = (0..300)
                .map(|_| match random() % 2 {
                    0 => common[random() as usize % common.len()],
                    _ => random() as u8,
                })
                .collect();
            let length = bytes.len() - round % 20;
            assert_eq!(
                swept(&bytes, length),
                slowly(&bytes, length),
                "{bytes:02x?}"
            );
        }
    }
}
