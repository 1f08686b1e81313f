//! The interposed functions, for C and for Fortran: which of them does what. Each is MPI's function of that
//! name; its arguments are words, in Fortran with the address of the error code behind them.

use crate::call::Call;
use crate::collectives::{self as c, Direction};
use crate::library::Real;
use crate::messages::{self as m, Mode};
use crate::requests::{self as r, Ends};
use crate::spawn;
use hpcrun_abi::host::Stacked;
use std::cell::Cell;
use std::ffi::c_int;

/// Whether a function may wait for other processes, by its name in C or Fortran. What MPI does in its start
/// is work.
const fn may_wait(name: &[u8]) -> bool {
    const LOCAL: [&[u8]; 7] =
        [b"init", b"bsend", b"test", b"start", b"cancel", b"request_free", b"comm_free"];
    let mut index = 0;
    while index < LOCAL.len() {
        if has_at(name, 4, LOCAL[index]) {
            return false;
        }
        index += 1;
    }
    // A persistent operation is prepared.
    let mut at = 5;
    while at < name.len() {
        if has_at(name, at, b"_init") {
            return false;
        }
        at += 1;
    }
    // What begins with an I is immediate.
    !has_at(name, 4, b"i") || has_at(name, 4, b"intercomm")
}

/// Whether a name has a word at a place, in small or capital letters.
const fn has_at(name: &[u8], place: usize, word: &[u8]) -> bool {
    let mut index = 0;
    while index < word.len() {
        if place + index >= name.len() || name[place + index].to_ascii_lowercase() != word[index] {
            return false;
        }
        index += 1;
    }
    true
}

macro_rules! interpose {
    ($([$act:expr] $($name:ident $fortran:ident $($large:ident)? ($($argument:ident)*);)*)*) => { $($(
        interpose!(@one $act, "P" $name ($($argument)*) ());
        interpose!(@one $act, "p" $fortran ($($argument)*) (error));
        interpose!(@large $act, ($($argument)*) $($large)?);
    )*)* };
    (@large $act:expr, $arguments:tt) => {};
    (@large $act:expr, $arguments:tt $name:ident) => {
        interpose!(@one $act, "P" $name $arguments ());
    };
    (@one $act:expr, $prefix:literal $name:ident ($($argument:ident)*) ($($error:ident)?)) => {
        /// Interposed; see the module. What it returns means nothing to Fortran.
        ///
        /// # Safety
        /// As for MPI's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($argument: usize,)* $($error: *mut c_int,)? caller: Stacked
        ) -> c_int {
            static REAL: Real = Real::new(concat!($prefix, stringify!($name), "\0"));
            let arguments: &[Cell<usize>] = &[$(Cell::new($argument)),*];
            let real = || {
                let [$($argument),*] = arguments else { return -1 };
                type Function = unsafe extern "C" fn(
                    $(interpose!(@usize $argument),)* $(interpose!(@pointer $error))?
                ) -> c_int;
                // SAFETY: MPI's function of this name. Its arguments are words, behind which Fortran's has an
                // address for its error code.
                unsafe {
                    let function = std::mem::transmute::<usize, Function>(REAL.address());
                    let result = function($($argument.get(),)* $($error)?);
                    [result, $(*$error)?][ERRORS]
                }
            };
            const ERRORS: usize = 0 $(+ interpose!(@one_more $error))?;
            let act: fn(&Call<'_>) -> c_int = $act;
            act(&Call {
                arguments,
                real: &real,
                fortran: ERRORS > 0,
                waits: const { may_wait(stringify!($name).as_bytes()) },
                address: caller.return_address(arguments.len() + ERRORS) as u64 - 1,
            })
        }
    };
    (@usize $argument:ident) => { usize };
    (@pointer $argument:ident) => { *mut c_int };
    (@one_more $argument:ident) => { 1 };
}

interpose! {
    [m::finalize]
    MPI_Finalize mpi_finalize_();
    [|c| m::send(c, Mode::Standard)]
    MPI_Send mpi_send_ MPI_Send_c(a b c d e f);
    MPI_Bsend mpi_bsend_ MPI_Bsend_c(a b c d e f);
    MPI_Rsend mpi_rsend_ MPI_Rsend_c(a b c d e f);
    MPI_Isend mpi_isend_ MPI_Isend_c(a b c d e f g);
    MPI_Ibsend mpi_ibsend_ MPI_Ibsend_c(a b c d e f g);
    MPI_Irsend mpi_irsend_ MPI_Irsend_c(a b c d e f g);
    [|c| m::send(c, Mode::Synchronous)]
    MPI_Ssend mpi_ssend_ MPI_Ssend_c(a b c d e f);
    MPI_Issend mpi_issend_ MPI_Issend_c(a b c d e f g);
    [|c| m::prepare(c, Some(Mode::Standard))]
    MPI_Send_init mpi_send_init_ MPI_Send_init_c(a b c d e f g);
    MPI_Bsend_init mpi_bsend_init_ MPI_Bsend_init_c(a b c d e f g);
    MPI_Rsend_init mpi_rsend_init_ MPI_Rsend_init_c(a b c d e f g);
    [|c| m::prepare(c, Some(Mode::Synchronous))]
    MPI_Ssend_init mpi_ssend_init_ MPI_Ssend_init_c(a b c d e f g);
    [m::receive]
    MPI_Recv mpi_recv_ MPI_Recv_c(a b c d e f g);
    [m::begin_receive]
    MPI_Irecv mpi_irecv_ MPI_Irecv_c(a b c d e f g);
    [|c| m::prepare(c, None)]
    MPI_Recv_init mpi_recv_init_ MPI_Recv_init_c(a b c d e f g);
    [|c| m::exchange(c, 8)]
    MPI_Sendrecv mpi_sendrecv_ MPI_Sendrecv_c(a b c d e f g h i j k l);
    [|c| m::exchange(c, 5)]
    MPI_Sendrecv_replace mpi_sendrecv_replace_ MPI_Sendrecv_replace_c(a b c d e f g h i);
    [|c| m::probe(c, None, 3, false)]
    MPI_Probe mpi_probe_(a b c d);
    [|c| m::probe(c, Some(3), 4, false)]
    MPI_Iprobe mpi_iprobe_(a b c d e);
    [|c| m::probe(c, None, 4, true)]
    MPI_Mprobe mpi_mprobe_(a b c d e);
    [|c| m::probe(c, Some(3), 5, true)]
    MPI_Improbe mpi_improbe_(a b c d e f);
    [m::other]
    MPI_Mrecv mpi_mrecv_ MPI_Mrecv_c(a b c d e);
    MPI_Imrecv mpi_imrecv_ MPI_Imrecv_c(a b c d e);
    MPI_Win_complete mpi_win_complete_(a);
    MPI_Win_lock_all mpi_win_lock_all_(a b);
    MPI_Win_unlock mpi_win_unlock_(a b);
    MPI_Win_unlock_all mpi_win_unlock_all_(a);
    MPI_Win_flush mpi_win_flush_(a b);
    MPI_Win_flush_all mpi_win_flush_all_(a);
    [|c| r::wait(c, None, 0, 1, Ends::All)]
    MPI_Wait mpi_wait_(a b);
    [|c| r::wait(c, None, 0, 2, Ends::AllIf(1))]
    MPI_Test mpi_test_(a b c);
    [|c| r::wait(c, Some(0), 1, 2, Ends::All)]
    MPI_Waitall mpi_waitall_(a b c);
    [|c| r::wait(c, Some(0), 1, 3, Ends::AllIf(2))]
    MPI_Testall mpi_testall_(a b c d);
    [|c| r::wait(c, Some(0), 1, 3, Ends::One(2, None))]
    MPI_Waitany mpi_waitany_(a b c d);
    [|c| r::wait(c, Some(0), 1, 4, Ends::One(2, Some(3)))]
    MPI_Testany mpi_testany_(a b c d e);
    [|c| r::wait(c, Some(0), 1, 4, Ends::Some(2, 3))]
    MPI_Waitsome mpi_waitsome_(a b c d e);
    MPI_Testsome mpi_testsome_(a b c d e);
    [|c| r::start(c, None, 0)]
    MPI_Start mpi_start_(a);
    [|c| r::start(c, Some(0), 1)]
    MPI_Startall mpi_startall_(a b);
    [r::cancel]
    MPI_Cancel mpi_cancel_(a);
    [r::free]
    MPI_Request_free mpi_request_free_(a);
    [|a| c::run(a, Direction::All, true)]
    MPI_Barrier mpi_barrier_(a);
    MPI_Allreduce mpi_allreduce_ MPI_Allreduce_c(a b c d e f);
    MPI_Allgather mpi_allgather_ MPI_Allgather_c(a b c d e f g);
    MPI_Allgatherv mpi_allgatherv_ MPI_Allgatherv_c(a b c d e f g h);
    MPI_Alltoall mpi_alltoall_ MPI_Alltoall_c(a b c d e f g);
    MPI_Reduce_scatter mpi_reduce_scatter_ MPI_Reduce_scatter_c(a b c d e f);
    MPI_Reduce_scatter_block mpi_reduce_scatter_block_ MPI_Reduce_scatter_block_c(a b c d e f);
    [|a| c::run(a, Direction::All, false)]
    MPI_Ibarrier mpi_ibarrier_(a b);
    MPI_Iallreduce mpi_iallreduce_ MPI_Iallreduce_c(a b c d e f g);
    MPI_Iallgather mpi_iallgather_ MPI_Iallgather_c(a b c d e f g h);
    MPI_Iallgatherv mpi_iallgatherv_ MPI_Iallgatherv_c(a b c d e f g h i);
    MPI_Ialltoall mpi_ialltoall_ MPI_Ialltoall_c(a b c d e f g h);
    MPI_Ireduce_scatter mpi_ireduce_scatter_ MPI_Ireduce_scatter_c(a b c d e f g);
    MPI_Ireduce_scatter_block mpi_ireduce_scatter_block_ MPI_Ireduce_scatter_block_c(a b c d e f g);
    [|a| c::run(a, Direction::Each(4), true)]
    MPI_Alltoallv mpi_alltoallv_(a b c d e f g h i);
    MPI_Alltoallw mpi_alltoallw_(a b c d e f g h i);
    [|a| c::run(a, Direction::Each(4), false)]
    MPI_Ialltoallv mpi_ialltoallv_(a b c d e f g h i j);
    MPI_Ialltoallw mpi_ialltoallw_(a b c d e f g h i j);
    [|a| c::run(a, Direction::FromRoot, true)]
    MPI_Bcast mpi_bcast_ MPI_Bcast_c(a b c d e);
    MPI_Scatter mpi_scatter_ MPI_Scatter_c(a b c d e f g h);
    MPI_Scatterv mpi_scatterv_ MPI_Scatterv_c(a b c d e f g h i);
    [|a| c::run(a, Direction::FromRoot, false)]
    MPI_Ibcast mpi_ibcast_ MPI_Ibcast_c(a b c d e f);
    MPI_Iscatter mpi_iscatter_ MPI_Iscatter_c(a b c d e f g h i);
    MPI_Iscatterv mpi_iscatterv_ MPI_Iscatterv_c(a b c d e f g h i j);
    [|a| c::run(a, Direction::ToRoot, true)]
    MPI_Reduce mpi_reduce_ MPI_Reduce_c(a b c d e f g);
    MPI_Gather mpi_gather_ MPI_Gather_c(a b c d e f g h);
    MPI_Gatherv mpi_gatherv_ MPI_Gatherv_c(a b c d e f g h i);
    [|a| c::run(a, Direction::ToRoot, false)]
    MPI_Ireduce mpi_ireduce_ MPI_Ireduce_c(a b c d e f g h);
    MPI_Igather mpi_igather_ MPI_Igather_c(a b c d e f g h i);
    MPI_Igatherv mpi_igatherv_ MPI_Igatherv_c(a b c d e f g h i j);
    [|a| c::run(a, Direction::Upwards, true)]
    MPI_Scan mpi_scan_ MPI_Scan_c(a b c d e f);
    MPI_Exscan mpi_exscan_ MPI_Exscan_c(a b c d e f);
    [|a| c::run(a, Direction::Upwards, false)]
    MPI_Iscan mpi_iscan_ MPI_Iscan_c(a b c d e f g);
    MPI_Iexscan mpi_iexscan_ MPI_Iexscan_c(a b c d e f g);
    [|c| m::begin_exchange(c, 8)]
    MPI_Isendrecv mpi_isendrecv_ MPI_Isendrecv_c(a b c d e f g h i j k l);
    [|c| m::begin_exchange(c, 5)]
    MPI_Isendrecv_replace mpi_isendrecv_replace_ MPI_Isendrecv_replace_c(a b c d e f g h i);
    [|a| c::prepare(a, Direction::All)]
    MPI_Barrier_init mpi_barrier_init_(a b c);
    MPI_Allreduce_init mpi_allreduce_init_ MPI_Allreduce_init_c(a b c d e f g h);
    MPI_Allgather_init mpi_allgather_init_ MPI_Allgather_init_c(a b c d e f g h i);
    MPI_Allgatherv_init mpi_allgatherv_init_ MPI_Allgatherv_init_c(a b c d e f g h i j);
    MPI_Alltoall_init mpi_alltoall_init_ MPI_Alltoall_init_c(a b c d e f g h i);
    MPI_Reduce_scatter_init mpi_reduce_scatter_init_ MPI_Reduce_scatter_init_c(a b c d e f g h);
    MPI_Reduce_scatter_block_init mpi_reduce_scatter_block_init_ MPI_Reduce_scatter_block_init_c(
        a b c d e f g h
    );
    [|a| c::prepare(a, Direction::Each(4))]
    MPI_Alltoallv_init mpi_alltoallv_init_(a b c d e f g h i j k);
    MPI_Alltoallw_init mpi_alltoallw_init_(a b c d e f g h i j k);
    [|a| c::prepare(a, Direction::FromRoot)]
    MPI_Bcast_init mpi_bcast_init_ MPI_Bcast_init_c(a b c d e f g);
    MPI_Scatter_init mpi_scatter_init_ MPI_Scatter_init_c(a b c d e f g h i j);
    MPI_Scatterv_init mpi_scatterv_init_ MPI_Scatterv_init_c(a b c d e f g h i j k);
    [|a| c::prepare(a, Direction::ToRoot)]
    MPI_Reduce_init mpi_reduce_init_ MPI_Reduce_init_c(a b c d e f g h i);
    MPI_Gather_init mpi_gather_init_ MPI_Gather_init_c(a b c d e f g h i j);
    MPI_Gatherv_init mpi_gatherv_init_ MPI_Gatherv_init_c(a b c d e f g h i j k);
    [|a| c::prepare(a, Direction::Upwards)]
    MPI_Scan_init mpi_scan_init_ MPI_Scan_init_c(a b c d e f g h);
    MPI_Exscan_init mpi_exscan_init_ MPI_Exscan_init_c(a b c d e f g h);
    [|a| c::run(a, Direction::Neighbours, true)]
    MPI_Neighbor_allgather mpi_neighbor_allgather_ MPI_Neighbor_allgather_c(a b c d e f g);
    MPI_Neighbor_allgatherv mpi_neighbor_allgatherv_ MPI_Neighbor_allgatherv_c(a b c d e f g h);
    MPI_Neighbor_alltoall mpi_neighbor_alltoall_ MPI_Neighbor_alltoall_c(a b c d e f g);
    MPI_Neighbor_alltoallv mpi_neighbor_alltoallv_ MPI_Neighbor_alltoallv_c(a b c d e f g h i);
    MPI_Neighbor_alltoallw mpi_neighbor_alltoallw_ MPI_Neighbor_alltoallw_c(a b c d e f g h i);
    [|a| c::run(a, Direction::Neighbours, false)]
    MPI_Ineighbor_allgather mpi_ineighbor_allgather_ MPI_Ineighbor_allgather_c(a b c d e f g h);
    MPI_Ineighbor_allgatherv mpi_ineighbor_allgatherv_ MPI_Ineighbor_allgatherv_c(a b c d e f g h i);
    MPI_Ineighbor_alltoall mpi_ineighbor_alltoall_ MPI_Ineighbor_alltoall_c(a b c d e f g h);
    MPI_Ineighbor_alltoallv mpi_ineighbor_alltoallv_ MPI_Ineighbor_alltoallv_c(a b c d e f g h i j);
    MPI_Ineighbor_alltoallw mpi_ineighbor_alltoallw_ MPI_Ineighbor_alltoallw_c(a b c d e f g h i j);
    [|a| c::prepare(a, Direction::Neighbours)]
    MPI_Neighbor_allgather_init mpi_neighbor_allgather_init_ MPI_Neighbor_allgather_init_c(a b c d e f g h i);
    MPI_Neighbor_allgatherv_init mpi_neighbor_allgatherv_init_ MPI_Neighbor_allgatherv_init_c(
        a b c d e f g h i j
    );
    MPI_Neighbor_alltoall_init mpi_neighbor_alltoall_init_ MPI_Neighbor_alltoall_init_c(a b c d e f g h i);
    MPI_Neighbor_alltoallv_init mpi_neighbor_alltoallv_init_ MPI_Neighbor_alltoallv_init_c(
        a b c d e f g h i j k
    );
    MPI_Neighbor_alltoallw_init mpi_neighbor_alltoallw_init_ MPI_Neighbor_alltoallw_init_c(
        a b c d e f g h i j k
    );
    [|c| m::make_window(c, 4)]
    MPI_Win_create mpi_win_create_ MPI_Win_create_c(a b c d e f);
    [|c| m::make_window(c, 3)]
    MPI_Win_allocate mpi_win_allocate_ MPI_Win_allocate_c(a b c d e f);
    MPI_Win_allocate_shared mpi_win_allocate_shared_ MPI_Win_allocate_shared_c(a b c d e f);
    [|c| m::make_window(c, 1)]
    MPI_Win_create_dynamic mpi_win_create_dynamic_ (a b c);
    [m::free_window]
    MPI_Win_free mpi_win_free_(a);
    [c::fence]
    MPI_Win_fence mpi_win_fence_(a b);
    [m::prepare_unknown]
    MPI_Psend_init mpi_psend_init_(a b c d e f g h i);
    MPI_Precv_init mpi_precv_init_(a b c d e f g h i);
    [spawn::run]
    MPI_Comm_spawn mpi_comm_spawn_(a b c d e f g h);
    [m::unknown]
    MPI_Win_start mpi_win_start_(a b c);
    MPI_Win_wait mpi_win_wait_(a);
    MPI_Win_lock mpi_win_lock_(a b c d);
    MPI_Intercomm_create mpi_intercomm_create_(a b c d e f);
    MPI_Comm_spawn_multiple mpi_comm_spawn_multiple_(a b c d e f g h i);
    MPI_Comm_accept mpi_comm_accept_(a b c d e);
    MPI_Comm_connect mpi_comm_connect_(a b c d e);
    MPI_File_open mpi_file_open_(a b c d e);
    MPI_File_close mpi_file_close_(a);
    MPI_File_read_all mpi_file_read_all_(a b c d e);
    MPI_File_write_all mpi_file_write_all_(a b c d e);
    MPI_File_read_at_all mpi_file_read_at_all_(a b c d e f);
    MPI_File_write_at_all mpi_file_write_at_all_(a b c d e f);
    MPI_File_read_ordered mpi_file_read_ordered_(a b c d e);
    MPI_File_write_ordered mpi_file_write_ordered_(a b c d e);
    MPI_File_set_view mpi_file_set_view_(a b c d e f);
    [m::make_comm]
    MPI_Comm_dup mpi_comm_dup_(a b);
    MPI_Comm_dup_with_info mpi_comm_dup_with_info_(a b c);
    MPI_Comm_split mpi_comm_split_(a b c d);
    MPI_Comm_split_type mpi_comm_split_type_(a b c d e);
    MPI_Comm_create mpi_comm_create_(a b c);
    MPI_Comm_create_group mpi_comm_create_group_(a b c d);
    MPI_Cart_create mpi_cart_create_(a b c d e f);
    MPI_Cart_sub mpi_cart_sub_(a b c);
    MPI_Graph_create mpi_graph_create_(a b c d e f);
    MPI_Dist_graph_create mpi_dist_graph_create_(a b c d e f g h i);
    MPI_Dist_graph_create_adjacent mpi_dist_graph_create_adjacent_(a b c d e f g h i j);
    MPI_Intercomm_merge mpi_intercomm_merge_(a b c);
    [m::free_comm]
    MPI_Comm_free mpi_comm_free_(a);
    MPI_Comm_disconnect mpi_comm_disconnect_(a);
}

// Fortran programs have no arguments to pass.
interpose!(@one m::init, "P" MPI_Init (a b) ());
interpose!(@one m::begin_session, "P" MPI_Session_init (a b c) ());
interpose!(@one m::unknown, "P" MPI_Comm_create_from_group (a b c d e) ());
interpose!(@one m::init, "P" MPI_Init_thread (a b c d) ());
interpose!(@one m::init, "p" mpi_init_ () (error));
interpose!(@one m::init, "p" mpi_init_thread_ (a b) (error));

// Their counts are as large as an address.
interpose!(@one |a| c::run(a, Direction::Each(8), true), "P" MPI_Alltoallv_c (a b c d e f g h i) ());
interpose!(@one |a| c::run(a, Direction::Each(8), true), "P" MPI_Alltoallw_c (a b c d e f g h i) ());
interpose!(@one |a| c::run(a, Direction::Each(8), false), "P" MPI_Ialltoallv_c (a b c d e f g h i j) ());
interpose!(@one |a| c::run(a, Direction::Each(8), false), "P" MPI_Ialltoallw_c (a b c d e f g h i j) ());

#[cfg(test)]
mod tests {
    use super::may_wait;

    #[test]
    fn who_may_wait_is_known_by_name() {
        for name in
            ["MPI_Recv", "mpi_barrier_", "MPI_Waitall", "mpi_intercomm_merge_", "MPI_Finalize"]
        {
            assert!(may_wait(name.as_bytes()), "{name}");
        }
        let others = [
            "MPI_Isend",
            "mpi_ibarrier_",
            "MPI_Testall",
            "mpi_recv_init_",
            "MPI_Iprobe",
            "MPI_Init",
        ];
        for name in others {
            assert!(!may_wait(name.as_bytes()), "{name}");
        }
    }
}
