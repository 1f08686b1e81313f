//! Writes a database: the catalogue (SQLite), contexts and values of threads (Parquet).

pub mod columns;
pub mod database;
mod rows;
pub mod scopes;
pub mod staged_directory;
