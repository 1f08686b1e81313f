//! Writes a database: the catalogue (SQLite), contexts, values of threads and traces (Parquet).

pub mod columns;
pub mod database;
mod rows;
pub mod scopes;
pub mod staged_directory;
pub mod trace;
