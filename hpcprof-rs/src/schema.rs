//! The tables of a database, with their version. FORMATS.md describes them.
//!
//! A minor change (a new table, a new nullable column) leaves the version as it is; a reader
//! refuses another version.

use crate::model::metrics::{IDLENESS, OVERHEAD, WORK};

/// `PRAGMA application_id`: "HPCR".
pub const APPLICATION_ID: i64 = 0x4850_4352;
/// `PRAGMA user_version`.
pub const VERSION: i64 = 12;
/// The catalogue within a database directory.
pub const FILE_NAME: &str = "database.sqlite";
/// Folder of what is known of each run, as Parquet.
pub const RUNS: &str = "runs";
/// The one row of a run, in its folder of [`RUNS`].
pub const RUN_FILE: &str = "run.parquet";
/// Folder of the contexts with the values of each run, as Parquet.
pub const CONTEXTS: &str = "contexts";
/// Folder of the values of each run's threads, as Parquet.
pub const THREAD_VALUES: &str = "thread_values";
/// Folder of what each run's threads did when, as Parquet.
pub const TRACES: &str = "trace";
/// The slices of a run's threads, in its folder of [`TRACES`].
pub const TRACE_FILE: &str = "trace.parquet";
/// The edges between them, beside it.
pub const EDGES_FILE: &str = "edges.parquet";
/// Contexts of the logical projection, in a run's folder of [`CONTEXTS`].
pub const LOGICAL_FILE: &str = "logical.parquet";
/// Contexts of the physical projection. A run lacks it if that is equal to the logical one.
pub const PHYSICAL_FILE: &str = "physical.parquet";

/// Creates all tables. Amounts are whole base units: `metric.per_unit` of them are one unit.
///
/// The table `context` has the folded logical tree. Its rows are numbered in preorder: the contexts below
/// `id` are `id + 1 ..= last`, the first child is `id + 1`, and the next sibling `last + 1`.
pub const CREATE: &str = "
CREATE TABLE host(id INTEGER PRIMARY KEY, name TEXT NOT NULL, boot TEXT NOT NULL);
CREATE TABLE run(
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, run_set INTEGER NOT NULL,
    host INTEGER NOT NULL REFERENCES host, job TEXT NOT NULL, directory TEXT NOT NULL,
    command TEXT NOT NULL,
    start_ns INTEGER NOT NULL, wall_ns INTEGER NOT NULL);
CREATE TABLE process(
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES run, pid INTEGER NOT NULL,
    ppid INTEGER NOT NULL, image INTEGER NOT NULL,
    executable TEXT NOT NULL, arguments TEXT NOT NULL, directory TEXT NOT NULL,
    event TEXT NOT NULL, source TEXT NOT NULL, period_ns INTEGER NOT NULL,
    cores INTEGER NOT NULL, mean_cores REAL NOT NULL, workers INTEGER NOT NULL, threads INTEGER NOT NULL,
    realtime_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, end_reason TEXT,
    cpu_ns INTEGER NOT NULL, children_ns INTEGER NOT NULL, unsampled_ns INTEGER NOT NULL,
    estimated_wait_ns INTEGER NOT NULL, unknown_lock_wait_ns INTEGER NOT NULL,
    run_delay_ns INTEGER NOT NULL);
CREATE TABLE thread(
    id INTEGER PRIMARY KEY, process INTEGER NOT NULL REFERENCES process, ordinal INTEGER NOT NULL,
    tid INTEGER NOT NULL, name TEXT NOT NULL, finished INTEGER NOT NULL, samples INTEGER NOT NULL,
    cpu_ns INTEGER NOT NULL, idle_ns INTEGER NOT NULL, oversubscribed_ns INTEGER NOT NULL,
    creator INTEGER NOT NULL);
CREATE TABLE metric(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, unit TEXT NOT NULL, aggregation TEXT NOT NULL,
    per_unit INTEGER NOT NULL, part_of INTEGER REFERENCES metric, description TEXT NOT NULL);
CREATE TABLE thread_value(
    thread INTEGER NOT NULL REFERENCES thread, metric INTEGER NOT NULL REFERENCES metric,
    value INTEGER NOT NULL, PRIMARY KEY(thread, metric)) WITHOUT ROWID;
CREATE TABLE module(
    id INTEGER PRIMARY KEY, path TEXT NOT NULL, build_id TEXT NOT NULL, analysed INTEGER NOT NULL);
CREATE TABLE file(id INTEGER PRIMARY KEY, path TEXT NOT NULL);
CREATE TABLE procedure(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, module INTEGER REFERENCES module,
    file INTEGER REFERENCES file, line INTEGER, origin TEXT NOT NULL);
CREATE TABLE region(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, module INTEGER REFERENCES module,
    file INTEGER REFERENCES file, line INTEGER, origin TEXT NOT NULL, position INTEGER NOT NULL);
CREATE TABLE parallel_loop(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, quoted INTEGER NOT NULL,
    entry INTEGER NOT NULL REFERENCES procedure, file INTEGER REFERENCES file, line INTEGER,
    splits INTEGER, steals INTEGER, stolen_ns INTEGER, executions INTEGER,
    outside INTEGER, chunks INTEGER, iterations INTEGER,
    shared_by INTEGER NOT NULL, task_ns INTEGER NOT NULL);
CREATE TABLE scope(
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, procedure INTEGER REFERENCES procedure,
    region INTEGER REFERENCES region, parallel_loop INTEGER REFERENCES parallel_loop,
    file INTEGER REFERENCES file, line INTEGER,
    call_file INTEGER REFERENCES file, call_line INTEGER, calls TEXT, is_runtime INTEGER NOT NULL);
CREATE TABLE context(
    id INTEGER PRIMARY KEY, last INTEGER NOT NULL, parent INTEGER REFERENCES context,
    depth INTEGER NOT NULL, scope INTEGER NOT NULL REFERENCES scope, caller INTEGER REFERENCES context,
    recursion INTEGER NOT NULL, key INTEGER NOT NULL);
CREATE TABLE value(
    context INTEGER NOT NULL REFERENCES context, metric INTEGER NOT NULL REFERENCES metric,
    inclusive INTEGER NOT NULL, exclusive INTEGER NOT NULL, threads INTEGER,
    least INTEGER, most INTEGER, sigma REAL, error REAL,
    PRIMARY KEY(context, metric)) WITHOUT ROWID;
CREATE TABLE total(metric INTEGER PRIMARY KEY REFERENCES metric, value INTEGER NOT NULL);
CREATE TABLE projection(name TEXT PRIMARY KEY, contexts INTEGER NOT NULL, same_as TEXT) WITHOUT ROWID;
CREATE TABLE data_file(path TEXT PRIMARY KEY, bytes INTEGER NOT NULL, crc32 INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE loss(
    process INTEGER NOT NULL REFERENCES process, cause TEXT NOT NULL, samples INTEGER NOT NULL,
    time_ns INTEGER NOT NULL, PRIMARY KEY(process, cause)) WITHOUT ROWID;
CREATE TABLE spawnerless(
    thread INTEGER NOT NULL REFERENCES thread, samples INTEGER NOT NULL, runtime TEXT NOT NULL,
    PRIMARY KEY(thread, runtime)) WITHOUT ROWID;
CREATE TABLE missing(id INTEGER PRIMARY KEY, what TEXT NOT NULL, nanoseconds INTEGER NOT NULL);
CREATE TABLE unprofiled(
    id INTEGER PRIMARY KEY, program TEXT NOT NULL, reason TEXT NOT NULL, times INTEGER NOT NULL);
CREATE TABLE critical_path(
    process INTEGER PRIMARY KEY REFERENCES process, span_ns INTEGER NOT NULL, path TEXT NOT NULL);
CREATE TABLE statistics(json TEXT NOT NULL);
CREATE TABLE advice(json TEXT NOT NULL);
CREATE TABLE note(id INTEGER PRIMARY KEY, text TEXT NOT NULL);
";

/// Creates the views that users query, and what finds rows fast. In each view the columns `samples`, `work`,
/// `idleness` and `overhead` add up to the totals: no row has a part of what another one has.
pub fn create_views() -> String {
    let seconds = |alias: &str| format!("COALESCE({alias}.exclusive, 0) / 1e9");
    let inclusive = |alias: &str| format!("COALESCE({alias}.inclusive, 0) / 1e9");
    let join = |alias: &str, metric: &str| {
        format!("LEFT JOIN value {alias} ON {alias}.context = c.id AND {alias}.metric = {metric}")
    };
    let joins = [
        join("w", &WORK.to_string()),
        join("i", &IDLENESS.to_string()),
        join("o", &OVERHEAD.to_string()),
        join("n", "(SELECT id FROM metric WHERE name = 'samples')"),
    ]
    .join("\n    ");
    let (work, idleness, overhead) = (seconds("w"), seconds("i"), seconds("o"));
    let (all_work, all_idleness, all_overhead) = (inclusive("w"), inclusive("i"), inclusive("o"));
    format!(
        "
CREATE INDEX context_scope ON context(scope);
CREATE VIEW named_scope AS SELECT
    s.id, s.kind, COALESCE(l.name, r.name, p.name) AS name, m.path AS module,
    f.path AS file, COALESCE(s.line, l.line, r.line, p.line) AS line,
    cf.path AS call_file, s.call_line, p.name AS procedure
    FROM scope s LEFT JOIN procedure p ON p.id = s.procedure LEFT JOIN region r ON r.id = s.region
    LEFT JOIN parallel_loop l ON l.id = s.parallel_loop
    LEFT JOIN module m ON m.id = COALESCE(p.module, r.module)
    LEFT JOIN file f ON f.id = COALESCE(s.file, l.file, r.file, p.file)
    LEFT JOIN file cf ON cf.id = s.call_file;
CREATE VIEW takers AS SELECT COALESCE(SUM(MIN(cores, threads)), 0) AS threads FROM
    (SELECT SUM(cores) AS cores, SUM(threads) AS threads FROM
        (SELECT r.run_set, MAX(p.cores) AS cores, SUM(p.threads) AS threads
         FROM process p JOIN run r ON r.id = p.run GROUP BY r.run_set, r.host)
     GROUP BY run_set);
CREATE VIEW top_down AS SELECT
    c.id AS context, c.last, c.parent, c.depth, printf('%016x', c.key) AS key,
    s.kind, s.name, s.procedure, s.module, s.file, s.line, s.call_file, s.call_line,
    COALESCE(n.exclusive, 0) AS samples, {work} AS work, {idleness} AS idleness, {overhead} AS overhead,
    COALESCE(n.inclusive, 0) AS inclusive_samples, {all_work} AS inclusive_work,
    {all_idleness} AS inclusive_idleness, {all_overhead} AS inclusive_overhead,
    {all_work} + {all_idleness} + {all_overhead} AS inclusive_effort,
    w.error / 1e9 AS work_error, i.error / 1e9 AS idleness_error, o.error / 1e9 AS overhead_error,
    w.threads AS threads,
    w.most * 1.0 * MAX(w.threads, (SELECT threads FROM takers)) / nullif(w.inclusive, 0) AS work_imbalance
    FROM context c JOIN named_scope s ON s.id = c.scope
    {joins};
CREATE VIEW hot_contexts AS SELECT * FROM top_down
    WHERE samples + work + idleness + overhead > 0 ORDER BY work + idleness + overhead DESC, context;
CREATE VIEW bottom_up AS SELECT
    COALESCE(s.procedure, s.name) AS procedure, s.module, u.name AS caller,
    SUM(COALESCE(n.exclusive, 0)) AS samples, SUM({work}) AS work, SUM({idleness}) AS idleness,
    SUM({overhead}) AS overhead
    FROM context c JOIN named_scope s ON s.id = c.scope
    LEFT JOIN context uc ON uc.id = c.caller LEFT JOIN named_scope u ON u.id = uc.scope
    {joins}
    WHERE COALESCE(n.exclusive, 0) + {work} + {idleness} + {overhead} > 0
    GROUP BY 1, 2, 3;
CREATE VIEW threads AS SELECT
    t.id AS thread, r.key AS run, h.name AS host, p.pid, p.executable, t.ordinal, t.tid, t.name,
    t.samples, COALESCE(w.value, 0) / 1e9 AS work, COALESCE(i.value, 0) / 1e9 AS idleness,
    COALESCE(o.value, 0) / 1e9 AS overhead, t.cpu_ns / 1e9 AS cpu, t.idle_ns / 1e9 AS spinning
    FROM thread t JOIN process p ON p.id = t.process JOIN run r ON r.id = p.run JOIN host h ON h.id = r.host
    LEFT JOIN thread_value w ON w.thread = t.id AND w.metric = {WORK}
    LEFT JOIN thread_value i ON i.thread = t.id AND i.metric = {IDLENESS}
    LEFT JOIN thread_value o ON o.thread = t.id AND o.metric = {OVERHEAD};
CREATE VIEW totals AS SELECT
    m.name AS metric, t.value * 1.0 / m.per_unit AS value, m.unit, w.name AS part_of, m.description
    FROM total t JOIN metric m ON m.id = t.metric LEFT JOIN metric w ON w.id = m.part_of;
CREATE VIEW runs AS SELECT
    r.key AS run, h.name AS host, r.job, r.directory, r.start_ns / 1e9 AS start, r.wall_ns / 1e9 AS wall,
    (SELECT COUNT(*) FROM process p WHERE p.run = r.id) AS processes, COUNT(t.thread) AS threads,
    COALESCE(SUM(t.samples), 0) AS samples,
    COALESCE(SUM(t.work), 0) AS work, COALESCE(SUM(t.idleness), 0) AS idleness,
    COALESCE(SUM(t.overhead), 0) AS overhead
    FROM run r JOIN host h ON h.id = r.host LEFT JOIN threads t ON t.run = r.key
    GROUP BY r.id;
CREATE VIEW context_statistics AS SELECT
    v.context, m.name AS metric, m.unit, v.threads AS count, v.inclusive * 1.0 / m.per_unit AS sum,
    v.least * 1.0 / m.per_unit AS min, v.inclusive * 1.0 / m.per_unit / nullif(v.threads, 0) AS mean,
    v.most * 1.0 / m.per_unit AS max, v.sigma / m.per_unit AS sigma,
    v.error / m.per_unit AS standard_error
    FROM value v JOIN metric m ON m.id = v.metric WHERE v.threads IS NOT NULL;
"
    )
}
