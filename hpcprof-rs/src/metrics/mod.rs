//! Metrics that a user derives from those of a database, such as `idleness/(work+idleness)`.
//!
//! `syntax` reads the text, `unit` has the algebra of units, `expression` checks and evaluates.

pub mod expression;
mod syntax;
pub mod unit;
