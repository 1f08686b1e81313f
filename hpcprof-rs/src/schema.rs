//! The tables of `database.sqlite`, with their version. FORMATS.md describes them.
//!
//! A minor change (a new table, a new nullable column) leaves the version as it is; a reader
//! refuses another version.

/// `PRAGMA application_id`: "HPCR".
pub const APPLICATION_ID: i64 = 0x4850_4352;
/// `PRAGMA user_version`.
pub const VERSION: i64 = 1;
/// The file within a database directory.
pub const FILE_NAME: &str = "database.sqlite";
/// `projection.name` of user-level call paths.
pub const LOGICAL: &str = "logical";
/// `projection.name` of machine call paths.
pub const PHYSICAL: &str = "physical";

/// Creates all tables. Every amount is in whole nanoseconds unless its metric says otherwise.
///
/// Contexts are numbered in preorder: the contexts below `id` are `id+1 ..= last`, so an
/// inclusive value is the sum of `value` over `context BETWEEN id AND last`. A projection is a
/// range of contexts; where both projections are equal (no task runtime), they are one range.
///
/// ```sql
/// -- Inclusive idleness of every context of a procedure, seconds.
/// SELECT c.id, SUM(v.value) / 1e9 FROM context c
/// JOIN projection r ON r.name = 'logical' AND c.id BETWEEN r.first AND r.last
/// JOIN procedure p ON p.id = c.procedure AND p.name = 'app::copy_matrix'
/// JOIN value v ON v.context BETWEEN c.id AND c.last
/// JOIN metric m ON m.id = v.metric AND m.name = 'idleness' GROUP BY c.id;
/// ```
pub const CREATE: &str = "
CREATE TABLE process(
    id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, ppid INTEGER NOT NULL, image INTEGER NOT NULL,
    executable TEXT NOT NULL, arguments TEXT NOT NULL, directory TEXT NOT NULL,
    event TEXT NOT NULL, source TEXT NOT NULL, period_ns INTEGER NOT NULL,
    cores INTEGER NOT NULL, workers INTEGER NOT NULL, threads INTEGER NOT NULL,
    realtime_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, end_reason TEXT,
    run INTEGER, cpu_ns INTEGER, children_ns INTEGER, unsampled_ns INTEGER, estimated_wait_ns INTEGER);
CREATE TABLE thread(
    id INTEGER PRIMARY KEY, process INTEGER NOT NULL REFERENCES process, ordinal INTEGER NOT NULL,
    tid INTEGER NOT NULL, name TEXT NOT NULL, finished INTEGER NOT NULL, samples INTEGER NOT NULL,
    cpu_ns INTEGER NOT NULL, idle_ns INTEGER NOT NULL, oversubscribed_ns INTEGER NOT NULL,
    creator INTEGER NOT NULL);
CREATE TABLE metric(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, unit TEXT NOT NULL,
    part_of INTEGER REFERENCES metric, description TEXT NOT NULL);
CREATE TABLE thread_value(
    thread INTEGER NOT NULL REFERENCES thread, metric INTEGER NOT NULL REFERENCES metric,
    value NUMERIC NOT NULL, PRIMARY KEY(thread, metric)) WITHOUT ROWID;
CREATE TABLE module(
    id INTEGER PRIMARY KEY, path TEXT NOT NULL, build_id TEXT NOT NULL, analysed INTEGER NOT NULL);
CREATE TABLE file(id INTEGER PRIMARY KEY, path TEXT NOT NULL);
CREATE TABLE procedure(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, module INTEGER REFERENCES module,
    file INTEGER REFERENCES file, line INTEGER, origin INTEGER NOT NULL);
CREATE TABLE projection(
    name TEXT PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE context(
    id INTEGER PRIMARY KEY, last INTEGER NOT NULL,
    parent INTEGER REFERENCES context, kind INTEGER NOT NULL,
    procedure INTEGER NOT NULL REFERENCES procedure,
    file INTEGER REFERENCES file, line INTEGER,
    call_file INTEGER REFERENCES file, call_line INTEGER, support INTEGER NOT NULL);
CREATE TABLE value(
    context INTEGER NOT NULL REFERENCES context, metric INTEGER NOT NULL REFERENCES metric,
    value NUMERIC NOT NULL, PRIMARY KEY(context, metric)) WITHOUT ROWID;
CREATE TABLE loss(
    process INTEGER NOT NULL REFERENCES process, cause TEXT NOT NULL, samples INTEGER NOT NULL,
    PRIMARY KEY(process, cause)) WITHOUT ROWID;
CREATE TABLE spawnerless(
    thread INTEGER NOT NULL REFERENCES thread, samples INTEGER NOT NULL, runtime TEXT NOT NULL,
    PRIMARY KEY(thread, runtime)) WITHOUT ROWID;
CREATE TABLE missing(id INTEGER PRIMARY KEY, what TEXT NOT NULL, nanoseconds INTEGER NOT NULL);
CREATE TABLE unprofiled(
    id INTEGER PRIMARY KEY, program TEXT NOT NULL, reason TEXT NOT NULL, times INTEGER NOT NULL);
CREATE TABLE parallel_loop(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, quoted INTEGER NOT NULL,
    entry INTEGER NOT NULL REFERENCES procedure, file INTEGER REFERENCES file, line INTEGER,
    splits INTEGER, steals INTEGER, stolen_ns INTEGER, shared_by INTEGER NOT NULL,
    task_ns INTEGER NOT NULL);
CREATE TABLE machinery(
    context INTEGER PRIMARY KEY REFERENCES context,
    parallel_loop INTEGER NOT NULL REFERENCES parallel_loop);
CREATE TABLE note(id INTEGER PRIMARY KEY, text TEXT NOT NULL);
";
