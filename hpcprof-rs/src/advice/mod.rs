//! Advice: what the figures say, and where they are silent because they can't carry a verdict.

pub mod advise;
pub mod critical_path;
pub mod efficiency;
pub mod findings;
pub mod first_screen;
pub mod headline;
pub mod owners;
pub mod quality;
pub mod rows;
