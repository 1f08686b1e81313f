//! The parallel start-up overhead: what it costs to execute code in parallel, beside the work itself.
//!
//! The model is that of R. Sakellariou, *Estimating the Parallel Start-Up Overhead for Parallelizing
//! Compilers* (1997). Code that takes t_s serially takes t_p = t_o + t_s / p on p workers; of the overheads
//! t_o the start-up t_PS depends on the construct and on p alone, so it is measured once for a machine.
//!
//! | module | duty |
//! |---|---|
//! | `model` | the formulas: start-up, gain, break-even, best p |
//! | `calibration` | what was measured on a machine, and its file |
//! | `measure` | measures the constructs (feature `measure`) |

pub mod calibration;
#[cfg(feature = "measure")]
pub mod measure;
pub mod model;
