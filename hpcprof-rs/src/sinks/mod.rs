//! Writes a database: the catalogue (SQLite), contexts and values of threads (Parquet).

pub mod columns;
mod critical_path;
pub mod database;
mod rows;
pub mod scopes;
pub mod staged_directory;
