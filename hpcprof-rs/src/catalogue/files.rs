//! The Parquet files of a database: which there are, and whether they are as they were written.

use crate::catalogue::{Catalogue, REBUILD};
use crate::error::{Error, Result};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{FileReader as _, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

pub(super) struct DataFile {
    path: PathBuf,
    /// Its path in the database.
    name: String,
    bytes: u64,
    crc32: u32,
}

impl DataFile {
    /// Opens it if every byte is as it was written. That takes a small part of the time of decoding it.
    pub(super) fn open(&self) -> ParquetResult<SerializedFileReader<File>> {
        let refused = |problem: String| ParquetError::General(format!("{}: {problem}", self.name));
        let mut file = File::open(&self.path).map_err(|e| refused(e.to_string()))?;
        let (mut sum, mut bytes) = (crc32fast::Hasher::new(), 0_u64);
        let mut buffer = vec![0; 1 << 18];
        loop {
            match file.read(&mut buffer).map_err(|e| refused(e.to_string()))? {
                0 => break,
                n => {
                    sum.update(&buffer[..n]);
                    bytes += n as u64;
                }
            }
        }
        if (bytes, sum.finalize()) != (self.bytes, self.crc32) {
            return Err(refused("it is not as it was written".to_owned()));
        }
        SerializedFileReader::new(file)
    }

    fn each_group(
        &self,
        read: &mut impl FnMut(&dyn RowGroupReader) -> ParquetResult<()>,
    ) -> ParquetResult<()> {
        let reader = self.open()?;
        (0..reader.num_row_groups()).try_for_each(|group| read(reader.get_row_group(group)?.as_ref()))
    }
}

impl Catalogue {
    /// The files of all runs in a folder whose names match a pattern, in the order of their paths.
    pub(super) fn files(&self, folder: &str, name: &str) -> Result<Vec<DataFile>> {
        self.files_of(folder, "*", name)
    }

    /// The same of the runs whose keys match a pattern.
    pub(super) fn files_of(&self, folder: &str, run: &str, name: &str) -> Result<Vec<DataFile>> {
        let sql = "SELECT path, bytes, crc32 FROM data_file WHERE path GLOB ? ORDER BY path";
        self.query(|connection| {
            let mut query = connection.prepare(sql)?;
            let rows = query.query_map([format!("{folder}/run={run}/{name}")], |row| {
                let name: String = row.get(0)?;
                Ok(DataFile {
                    path: self.directory().join(&name),
                    name,
                    bytes: row.get(1)?,
                    crc32: row.get(2)?,
                })
            })?;
            rows.collect()
        })
    }

    /// Calls `read` with each group of rows of files in a folder.
    pub(super) fn each_group(
        &self,
        folder: &str,
        files: &[DataFile],
        mut read: impl FnMut(&dyn RowGroupReader) -> ParquetResult<()>,
    ) -> Result<()> {
        let read = files.iter().try_for_each(|file| file.each_group(&mut read));
        read.map_err(|e| self.unreadable(folder, &e.to_string()))
    }

    /// The database directory.
    fn directory(&self) -> &Path {
        match self.path.is_dir() {
            true => self.path.as_path(),
            false => self.path.parent().unwrap_or(Path::new("")),
        }
    }

    /// An error of the files in a folder.
    pub(super) fn unreadable(&self, folder: &str, problem: &str) -> Error {
        let problem = format!("cannot be read: {problem}");
        Error::input(&self.directory().join(folder), problem, REBUILD)
    }
}
