//! The interposed functions: one list of the standard's, by what they do, with their names in C and Fortran
//! and how many arguments each form has; hooks follow from it. Each is MPI's function of that name; its
//! arguments are words, in Fortran with the address of the error code behind them.

use crate::call::{Call, Form};
use crate::collectives::{self as c, Direction};
use crate::library::Real;
use crate::messages::{self as m, Mode};
use crate::requests::{self as r, Ends};
use crate::spawn;
use crate::windows as w;
use hpcrun_abi::host::Stacked;
use std::cell::Cell;
use std::ffi::c_int;

/// Makes the hooks of a list. A row is a name in C and Fortran, and the numbers of arguments of its forms:
/// blocking, nonblocking (`I…`) and persistent (`…_init`), each of them with a variant for large counts
/// (`_c`) where the row says so. Blocking forms wait for other processes but in groups that are `local`.
macro_rules! functions {
    ($($waits:ident [$act:expr] $($name:literal $fortran:literal ($($forms:tt)*) $($large:ident)?;)*)*) => {
        $($(functions!(@forms $waits $act, $name, $fortran, ($($forms)*), $($large)?);)*)*
    };
    (@forms $waits:ident $act:expr, $name:literal, $fortran:literal, ($count:tt), $($large:ident)?) => {
        functions!(@form $waits Blocking $act, ($name), ($fortran), $count, $($large)?);
    };
    (@forms $waits:ident $act:expr, $name:literal, $fortran:literal, ($one:tt $two:tt), $($large:ident)?) => {
        functions!(@form $waits Blocking $act, ($name), ($fortran), $one, $($large)?);
        functions!(@form $waits Immediate $act, ("I", $fortran), ("i", $fortran), $two, $($large)?);
    };
    (
        @forms $waits:ident $act:expr, $name:literal, $fortran:literal, ($one:tt $two:tt $three:tt),
        $($large:ident)?
    ) => {
        functions!(@forms $waits $act, $name, $fortran, ($one $two), $($large)?);
        functions!(@form $waits Persistent $act, ($name, "_init"), ($fortran, "_init"), $three, $($large)?);
    };
    (@form $waits:ident $form:ident $act:expr, $name:tt, $fortran:tt, $count:tt, $($large:ident)?) => {
        arguments!($count hook $waits $form false $act, "MPI_" $name "", "PMPI_" $name "", ());
        arguments!($count hook $waits $form false $act, "mpi_" $fortran "_", "pmpi_" $fortran "_", (e));
        // By the module of Fortran 2008, whose functions of MPICH call C's where there is a buffer.
        arguments!(
            $count hook $waits $form false $act, "mpi_" $fortran "_f08_", "mpi_" $fortran "_f08_", (e)
        );
        $(arguments!($count hook $waits $form $large $act, "MPI_" $name "_c", "PMPI_" $name "_c", ());)?
    };
}

/// Calls a macro with so many arguments' names behind its own.
macro_rules! arguments {
    (0 $to:ident $($t:tt)*) => { $to!($($t)* ()); };
    (1 $to:ident $($t:tt)*) => { $to!($($t)* (a)); };
    (2 $to:ident $($t:tt)*) => { $to!($($t)* (a b)); };
    (3 $to:ident $($t:tt)*) => { $to!($($t)* (a b c)); };
    (4 $to:ident $($t:tt)*) => { $to!($($t)* (a b c d)); };
    (5 $to:ident $($t:tt)*) => { $to!($($t)* (a b c d e)); };
    (6 $to:ident $($t:tt)*) => { $to!($($t)* (a b c d e f)); };
    (7 $to:ident $($t:tt)*) => { $to!($($t)* (a b c d e f g)); };
    (8 $to:ident $($t:tt)*) => { $to!($($t)* (a b c d e f g h)); };
    (9 $to:ident $($t:tt)*) => { $to!($($t)* (a b c d e f g h i)); };
    (10 $to:ident $($t:tt)*) => { $to!($($t)* (a b c d e f g h i j)); };
    (11 $to:ident $($t:tt)*) => { $to!($($t)* (a b c d e f g h i j k)); };
    (12 $to:ident $($t:tt)*) => { $to!($($t)* (a b c d e f g h i j k l)); };
}

macro_rules! hook {
    (
        $waits:ident $form:ident $large:ident $act:expr, $before:literal $name:tt $after:literal,
        $real:literal $real_name:tt $end:literal, ($($error:ident)?) ($($argument:ident)*)
    ) => {
        const _: () = {
            /// Interposed; see the module. What it returns means nothing to Fortran.
            ///
            /// # Safety
            /// As for MPI's function.
            #[unsafe(export_name = hook!(@text $before $name $after))]
            pub unsafe extern "C" fn hook(
                $($argument: usize,)* $($error: *mut c_int,)? caller: Stacked
            ) -> c_int {
                static REAL: Real = Real::new(hook!(@text $real $real_name $end "\0"));
                let arguments: &[Cell<usize>] = &[$(Cell::new($argument)),*];
                let real = || {
                    let [$($argument),*] = arguments else { return -1 };
                    type Function = unsafe extern "C" fn(
                        $(hook!(@word $argument),)* $(hook!(@pointer $error))?
                    ) -> c_int;
                    // SAFETY: MPI's function of this name. Its arguments are words, behind which Fortran's
                    // has an address for its error code, or null.
                    unsafe {
                        let function = std::mem::transmute::<usize, Function>(REAL.address());
                        let result = function($($argument.get(),)* $($error)?);
                        [result, $($error.as_ref().map_or(0, |error| *error))?][ERRORS]
                    }
                };
                const ERRORS: usize = 0 $(+ hook!(@one $error))?;
                let act: fn(&Call<'_>) -> c_int = $act;
                act(&Call {
                    arguments,
                    real: &real,
                    fortran: ERRORS > 0,
                    form: Form::$form,
                    has_large_counts: $large,
                    waits: matches!(Form::$form, Form::Blocking) && hook!(@$waits),
                    address: caller.return_address(arguments.len() + ERRORS) as u64 - 1,
                })
            }
        };
    };
    (@text $before:literal ($($name:tt)*) $($after:literal)*) => {
        concat!($before, $($name)*, $($after),*)
    };
    (@word $argument:ident) => { usize };
    (@pointer $argument:ident) => { *mut c_int };
    (@one $argument:ident) => { 1 };
    (@waits) => { true };
    (@local) => { false };
}

functions! {
    waits [m::finalize]
    "Finalize" "finalize" (0);
    waits [|c| m::send(c, Mode::Standard)]
    "Send" "send" (6 7 7) true;
    "Rsend" "rsend" (6 7 7) true;
    local [|c| m::send(c, Mode::Standard)]
    "Bsend" "bsend" (6 7 7) true;
    waits [|c| m::send(c, Mode::Synchronous)]
    "Ssend" "ssend" (6 7 7) true;
    waits [m::receive]
    "Recv" "recv" (7 7 7) true;
    waits [|c| m::exchange(c, 8)]
    "Sendrecv" "sendrecv" (12 12) true;
    waits [|c| m::exchange(c, 5)]
    "Sendrecv_replace" "sendrecv_replace" (9 9) true;
    waits [|c| m::probe(c, false)]
    "Probe" "probe" (4 5);
    waits [|c| m::probe(c, true)]
    "Mprobe" "mprobe" (5 6);
    waits [m::other]
    "Mrecv" "mrecv" (5 5) true;
    "Win_lock_all" "win_lock_all" (2);
    "Win_unlock" "win_unlock" (2);
    "Win_unlock_all" "win_unlock_all" (1);
    "Win_flush" "win_flush" (2);
    "Win_flush_all" "win_flush_all" (1);
    waits [|c| r::wait(c, false, Ends::All)]
    "Wait" "wait" (2);
    waits [|c| r::wait(c, true, Ends::All)]
    "Waitall" "waitall" (3);
    waits [|c| r::wait(c, true, Ends::One(2, None))]
    "Waitany" "waitany" (4);
    waits [|c| r::wait(c, true, Ends::Some(2, 3))]
    "Waitsome" "waitsome" (5);
    local [|c| r::wait(c, false, Ends::AllIf(1))]
    "Test" "test" (3);
    local [|c| r::wait(c, true, Ends::AllIf(2))]
    "Testall" "testall" (4);
    local [|c| r::wait(c, true, Ends::One(2, Some(3)))]
    "Testany" "testany" (5);
    local [|c| r::wait(c, true, Ends::Some(2, 3))]
    "Testsome" "testsome" (5);
    local [|c| r::start(c, false)]
    "Start" "start" (1);
    local [|c| r::start(c, true)]
    "Startall" "startall" (2);
    local [r::cancel]
    "Cancel" "cancel" (1);
    local [r::free]
    "Request_free" "request_free" (1);
    waits [|a| c::collective(a, Direction::All)]
    "Barrier" "barrier" (1 2 3);
    "Allreduce" "allreduce" (6 7 8) true;
    "Allgather" "allgather" (7 8 9) true;
    "Allgatherv" "allgatherv" (8 9 10) true;
    "Alltoall" "alltoall" (7 8 9) true;
    "Reduce_scatter" "reduce_scatter" (6 7 8) true;
    "Reduce_scatter_block" "reduce_scatter_block" (6 7 8) true;
    waits [|a| c::collective(a, Direction::Each)]
    "Alltoallv" "alltoallv" (9 10 11) true;
    "Alltoallw" "alltoallw" (9 10 11) true;
    waits [|a| c::collective(a, Direction::FromRoot)]
    "Bcast" "bcast" (5 6 7) true;
    "Scatter" "scatter" (8 9 10) true;
    "Scatterv" "scatterv" (9 10 11) true;
    waits [|a| c::collective(a, Direction::ToRoot)]
    "Reduce" "reduce" (7 8 9) true;
    "Gather" "gather" (8 9 10) true;
    "Gatherv" "gatherv" (9 10 11) true;
    waits [|a| c::collective(a, Direction::Upwards)]
    "Scan" "scan" (6 7 8) true;
    "Exscan" "exscan" (6 7 8) true;
    waits [|a| c::collective(a, Direction::Neighbours)]
    "Neighbor_allgather" "neighbor_allgather" (7 8 9) true;
    "Neighbor_allgatherv" "neighbor_allgatherv" (8 9 10) true;
    "Neighbor_alltoall" "neighbor_alltoall" (7 8 9) true;
    "Neighbor_alltoallv" "neighbor_alltoallv" (9 10 11) true;
    "Neighbor_alltoallw" "neighbor_alltoallw" (9 10 11) true;
    waits [|c| w::make(c, 4)]
    "Win_create" "win_create" (6) true;
    waits [|c| w::make(c, 3)]
    "Win_allocate" "win_allocate" (6) true;
    "Win_allocate_shared" "win_allocate_shared" (6) true;
    waits [|c| w::make(c, 1)]
    "Win_create_dynamic" "win_create_dynamic" (3);
    waits [w::free]
    "Win_free" "win_free" (1);
    waits [w::fence]
    "Win_fence" "win_fence" (2);
    local [w::post]
    "Win_post" "win_post" (3);
    waits [w::start]
    "Win_start" "win_start" (3);
    waits [w::complete]
    "Win_complete" "win_complete" (1);
    waits [w::wait]
    "Win_wait" "win_wait" (1);
    local [w::wait]
    "Win_test" "win_test" (2);
    local [|c| m::prepare_partitioned(c, true)]
    "Psend_init" "psend_init" (9);
    local [|c| m::prepare_partitioned(c, false)]
    "Precv_init" "precv_init" (9);
    local [|c| m::partitions(c, |_| 1)]
    "Pready" "pready" (2);
    local [|c| m::partitions(c, |c| c.int(1) - c.int(0) + 1)]
    "Pready_range" "pready_range" (3);
    local [|c| m::partitions(c, |c| c.int(0))]
    "Pready_list" "pready_list" (3);
    waits [spawn::run]
    "Comm_spawn" "comm_spawn" (8);
    waits [m::unknown]
    "Win_lock" "win_lock" (4);
    "Comm_spawn_multiple" "comm_spawn_multiple" (9);
    "Comm_accept" "comm_accept" (5);
    "Comm_connect" "comm_connect" (5);
    "File_open" "file_open" (5);
    "File_close" "file_close" (1);
    "File_read_all" "file_read_all" (5) true;
    "File_write_all" "file_write_all" (5) true;
    "File_read_at_all" "file_read_at_all" (6) true;
    "File_write_at_all" "file_write_at_all" (6) true;
    "File_read_ordered" "file_read_ordered" (5) true;
    "File_write_ordered" "file_write_ordered" (5) true;
    "File_set_view" "file_set_view" (6);
    "File_set_size" "file_set_size" (2);
    "File_preallocate" "file_preallocate" (2);
    "File_sync" "file_sync" (1);
    "File_read_all_end" "file_read_all_end" (3);
    "File_write_all_end" "file_write_all_end" (3);
    "File_read_at_all_end" "file_read_at_all_end" (3);
    "File_write_at_all_end" "file_write_at_all_end" (3);
    "File_read_ordered_end" "file_read_ordered_end" (3);
    "File_write_ordered_end" "file_write_ordered_end" (3);
    waits [m::make_comm]
    "Comm_dup" "comm_dup" (2);
    "Comm_dup_with_info" "comm_dup_with_info" (3);
    "Comm_split" "comm_split" (4);
    "Comm_split_type" "comm_split_type" (5);
    "Comm_create" "comm_create" (3);
    "Comm_create_group" "comm_create_group" (4);
    "Cart_create" "cart_create" (6);
    "Cart_sub" "cart_sub" (3);
    "Graph_create" "graph_create" (6);
    "Dist_graph_create" "dist_graph_create" (9);
    "Dist_graph_create_adjacent" "dist_graph_create_adjacent" (10);
    "Intercomm_create" "intercomm_create" (6);
    "Intercomm_merge" "intercomm_merge" (3);
    local [m::free_comm]
    "Comm_free" "comm_free" (1);
    waits [m::free_comm]
    "Comm_disconnect" "comm_disconnect" (1);
}

// In C alone, or there with other arguments.
hook!(local Blocking false m::init, "MPI_" ("Init") "", "PMPI_" ("Init") "", () (a b));
hook!(local Blocking false m::init, "mpi_" ("init") "_", "pmpi_" ("init") "_", (e) ());
hook!(local Blocking false m::init, "mpi_" ("init") "_f08_", "mpi_" ("init") "_f08_", (e) ());
hook!(local Blocking false m::init, "MPI_" ("Init_thread") "", "PMPI_" ("Init_thread") "", () (a b c d));
hook!(local Blocking false m::init, "mpi_" ("init_thread") "_", "pmpi_" ("init_thread") "_", (e) (a b));
hook!(
    local Blocking false m::init, "mpi_" ("init_thread") "_f08_", "mpi_" ("init_thread") "_f08_", (e) (a b)
);
hook!(
    local Blocking false m::begin_session, "MPI_" ("Session_init") "", "PMPI_" ("Session_init") "", () (a b c)
);
hook!(
    waits Blocking false m::unknown, "MPI_" ("Comm_create_from_group") "",
    "PMPI_" ("Comm_create_from_group") "", () (a b c d e)
);
