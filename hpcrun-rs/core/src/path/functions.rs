//! Which functions an address is in: by the table of inlined procedures, if the launcher has made one for the
//! module, otherwise the one that the unwind information knows.
//!
//! A function is known by a number, which a report turns into a name ([`Names`]). In a job of several
//! processes, whose addresses differ, it is the same in all of them.

use crate::config::variable;
use crate::memory;
use crate::unwind::loadmap::{self, Module, Snapshot};
use critical_path::Function;
use hpc_formats::address::CodeAddress;
use hpc_formats::critical_path::ProcedureName;
use hpc_formats::environment::ENV_INLINED;
use hpc_formats::inlined::{Around, Table, identity};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Functions in order.
pub(super) type Functions = Arc<[Function]>;

static TABLE: OnceLock<Option<Table<'static>>> = OnceLock::new();

/// The names of functions whose numbers are not their addresses.
#[derive(Default)]
pub(super) struct Names(Mutex<BTreeMap<u64, ProcedureName>>);

impl Names {
    /// By number.
    pub(super) fn all(&self) -> BTreeMap<u64, ProcedureName> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, ProcedureName>> {
        // Nothing panics with the lock held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the table, before the program has threads.
pub(super) fn open() {
    TABLE.get_or_init(|| Table::new(memory::map_file(variable(ENV_INLINED)?.as_ref())?));
}

/// The functions with code at an address; none if there is no address, or no description of its code.
pub(super) fn at(address: CodeAddress) -> Functions {
    let found = loadmap::with_current(|snapshot| in_snapshot(snapshot, address));
    found.flatten().unwrap_or_default()
}

fn in_snapshot(snapshot: &Snapshot, address: CodeAddress) -> Option<Functions> {
    let mut modules = snapshot.modules().iter();
    let module = modules.find(|m| m.id == address.module())?;
    let inlined = inlined(module, address);
    if !inlined.is_empty() {
        return Some(inlined.into());
    }
    let start = loadmap::function_at(snapshot, address)?;
    let function = match super::is_in_job() {
        true => {
            let key = format!("{}:{:x}", module.path, start.offset());
            named(&key, ProcedureName::Function(start, 0))
        }
        false => Function(start.0),
    };
    Some([function].into())
}

/// The functions by the table, if it has the module.
fn inlined(module: &Module, address: CodeAddress) -> Vec<Function> {
    let find = || {
        let table = TABLE.get()?.as_ref()?;
        let module = table.module(identity(&module.build_id, &module.path))?;
        Some(table.around(module, address.offset()))
    };
    let number = |a: Around| {
        let key = format!("{}#{}", module.path, a.procedure);
        named(&key, ProcedureName::Function(address, a.depth))
    };
    let mut functions: Vec<Function> = find().into_iter().flatten().map(number).collect();
    functions.sort_unstable();
    functions
}

/// The number of a function by what is the same in all processes: a hash.
fn named(key: &str, name: ProcedureName) -> Function {
    let key = critical_path::key_of(key) << 1 >> 1;
    if let Some(path) = super::current() {
        path.names.lock().entry(key).or_insert(name);
    }
    Function(key)
}
