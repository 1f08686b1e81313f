//! Reads the counters of the cooperating runtimes' spawn sites. Not async-signal-safe.
//!
//! A runtime's counters are its statics. All are copied when the process ends normally or replaces itself; if
//! it is killed or crashes, they are lost.

use crate::activity;
use crate::unwind::loadmap::{self, Snapshot};
use hpc_formats::address::CodeAddress;
use hpc_formats::process::SiteCounts;
use hpcrun_abi::{CountedSite, RuntimeTable};
use std::sync::atomic::Ordering;

/// The counts of all sites where anything was counted since the process image began.
pub fn counts() -> Vec<SiteCounts> {
    loadmap::with_current(counts_in).unwrap_or_default()
}

/// Restarts the counts in a forked child: the counts so far belong to the parent.
pub fn start_anew() {
    for site in all() {
        for count in [&site.forks, &site.steals, &site.stolen_ns, &site.executions] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

fn all() -> impl Iterator<Item = &'static CountedSite> {
    activity::runtimes().flat_map(|(_, table)| sites_of(table))
}

fn counts_in(snapshot: &Snapshot) -> Vec<SiteCounts> {
    let counted = all().filter_map(|site| {
        let located = loadmap::locate(snapshot, site.ip as u64).filter(|_| site.ip != 0)?;
        let address = (site.ip as u64).wrapping_sub(located.bias);
        Some(SiteCounts {
            place: CodeAddress::new(located.id, address),
            splits: site.forks.load(Ordering::Relaxed),
            steals: site.steals.load(Ordering::Relaxed),
            stolen_ns: site.stolen_ns.load(Ordering::Relaxed),
            executions: site.executions.load(Ordering::Relaxed),
        })
    });
    counted.filter(is_counted).collect()
}

fn is_counted(site: &SiteCounts) -> bool {
    site.splits > 0 || site.steals > 0 || site.executions > 0
}

fn sites_of(table: &'static RuntimeTable) -> &'static [CountedSite] {
    if table.sites_start.is_null() {
        return &[];
    }
    let bytes = (table.sites_end as usize).saturating_sub(table.sites_start as usize);
    // SAFETY: a runtime's sites are consecutive statics of its program, which live as long as the process
    // (`RegisterRuntime`'s contract); their changing fields are atomics. Nothing here panics.
    unsafe { std::slice::from_raw_parts(table.sites_start, bytes / size_of::<CountedSite>()) }
}
