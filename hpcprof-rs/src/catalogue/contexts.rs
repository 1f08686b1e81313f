//! Reads the contexts of one projection with their values, from the Parquet files of all runs.

use crate::catalogue::column::Column;
use crate::catalogue::files::DataFile;
use crate::model::metrics::Metric;
use crate::model::tree::{Tree, TreeNode, Values};
use parquet::data_type::{Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::FileReader as _;

/// What is known of the contexts that are read.
pub(super) struct Names<'a> {
    pub(super) scopes: &'a [TreeNode],
    pub(super) loops: usize,
    pub(super) metrics: &'a [Metric],
}

/// Reads a tree of `contexts` contexts. Each is in the files of the runs in which it has values.
pub(super) fn read(files: &[DataFile], contexts: usize, names: &Names<'_>) -> Result<Tree> {
    let missing = || ParquetError::General("contexts are missing".to_owned());
    let readers: Vec<_> = files.iter().map(DataFile::open).collect::<Result<_>>()?;
    let rows = readers.iter().map(|r| r.metadata().file_metadata().num_rows());
    let rows = rows.fold(0, i64::saturating_add);
    // Memory is for contexts that are there.
    if i64::try_from(contexts).is_ok_and(|contexts| contexts > rows) {
        return Err(missing());
    }
    let mut nodes: Vec<Option<TreeNode>> = vec![None; contexts];
    let mut exclusive = Values::of_nodes(names.metrics.len(), contexts);
    for reader in readers {
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group)?;
            let group = group.as_ref();
            let ids = Column::<Int32Type>::required(group, "id")?;
            let scopes = Column::<Int32Type>::required(group, "scope")?;
            let parents = Column::<Int32Type>::optional(group, "parent")?;
            let loops = Column::<Int32Type>::optional(group, "parallel_loop")?;
            let rows = ids.values.iter().zip(&scopes.values);
            let rows = rows.zip(parents.rows().zip(loops.rows()));
            for ((id, scope), (parent, known)) in rows {
                let id = index(id, contexts)?;
                // A parent comes before its children.
                let parent = parent.map(|p| index(p, id as usize)).transpose()?;
                let scope = &names.scopes[index(scope, names.scopes.len())? as usize];
                let known = known.map(|l| index(l, names.loops)).transpose()?;
                nodes[id as usize] = Some(TreeNode { parent, parallel_loop: known, ..*scope });
            }
            for (position, metric) in names.metrics.iter().enumerate() {
                let amounts = Column::<Int64Type>::required(group, &metric.name)?;
                for (id, amount) in ids.values.iter().zip(&amounts.values) {
                    exclusive.add_one(*id as u32 - 1, position, *amount);
                }
            }
        }
    }
    let nodes = nodes.into_iter().collect::<Option<_>>().ok_or_else(missing)?;
    Ok(Tree { nodes, exclusive })
}

/// The index of the element with an id from 1.
pub(super) fn index(id: &i32, count: usize) -> Result<u32> {
    let index = usize::try_from(id.wrapping_sub(1)).ok();
    let index = index.filter(|index| *index < count);
    let wrong = || ParquetError::General("a reference leads nowhere".to_owned());
    index.map(|index| index as u32).ok_or_else(wrong)
}
