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
use hpc_formats::inlined::{Around, SPINS, Table, identity};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

pub(super) type Functions = Arc<[Function]>;

static TABLE: OnceLock<Option<Table<'static>>> = OnceLock::new();

/// The names of functions whose numbers are not their addresses.
#[derive(Default)]
pub(super) struct Names(Mutex<BTreeMap<u64, ProcedureName>>);

impl Names {
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

/// The functions with code at an address, none if there is no address, or no description of its code; and
/// whether it is in a loop that only another thread can end.
pub(super) fn at(address: CodeAddress) -> (Functions, bool) {
    let found = loadmap::with_current(|snapshot| {
        let mut modules = snapshot.modules().iter();
        let module = modules.find(|m| m.id == address.module())?;
        let around = around(module, address);
        let procedures = around.iter().filter(|around| **around != SPINS).map(|a| {
            let key = format!("{}#{}", module.path, a.procedure);
            named(&key, ProcedureName::Function(address, a.depth))
        });
        let mut functions: Vec<Function> = procedures.collect();
        functions.sort_unstable();
        let functions = match functions.is_empty() {
            true => function_at(snapshot, module, address).unwrap_or_default(),
            false => functions.into(),
        };
        Some((functions, around.contains(&SPINS)))
    });
    found.flatten().unwrap_or_default()
}

/// The function of the machine code alone.
fn function_at(snapshot: &Snapshot, module: &Module, address: CodeAddress) -> Option<Functions> {
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

/// What the table says, if it has the module.
fn around(module: &Module, address: CodeAddress) -> Vec<Around> {
    let find = || {
        let table = TABLE.get()?.as_ref()?;
        let module = table.module(identity(&module.build_id, &module.path))?;
        Some(table.around(module, address.offset()).collect())
    };
    find().unwrap_or_default()
}

/// The number of a function by what is the same in all processes: a hash.
fn named(key: &str, name: ProcedureName) -> Function {
    let key = critical_path::key_of(key) << 1 >> 1;
    if let Some(path) = super::current() {
        path.names.lock().entry(key).or_insert(name);
    }
    Function(key)
}
