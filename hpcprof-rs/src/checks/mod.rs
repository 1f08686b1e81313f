//! `hpcprof-rs check`: whether conditions over the metrics of a run hold, beyond chance.
//!
//! [`condition`] reads them, [`figures`] says what a database knows of their quantities and how far that
//! errs, [`answer`] compares, and [`report`] says the outcome to people, to CI and to scripts.

pub mod answer;
pub mod condition;
pub mod figures;
pub mod report;
