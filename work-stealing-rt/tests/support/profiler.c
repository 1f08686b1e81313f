/* A profiler of a few lines for tests/context.rs: keeps the runtime's table and counts calls.
 * Preloaded, so that the runtime finds it as it finds the real one. Layouts: hpcrun-abi. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

static const void *table;
static _Atomic long enters, leaves, captures;

static void worker_enter(const uint8_t *state) {
    if (*state == 0)
        enters++;
}
static void worker_leave(const uint8_t *state) {
    if (*state == 0)
        leaves++;
}
static size_t capture_context(void) { return 1000 + (size_t)++captures; }

/* For runtimes that tell of their tasks, which this one does not. */
static void task_begin(void *record, size_t context) { (void)record, (void)context; }
static void task_end(void *record) { (void)record; }
static void wait_begin(void) {}
static void wait_end(void) {}

static const struct {
    uint32_t size, version;
    void (*worker_enter)(const uint8_t *);
    void (*worker_leave)(const uint8_t *);
    size_t (*capture_context)(void);
    const void *path;
    void (*task_begin)(void *, size_t);
    void (*task_end)(void *);
    void (*wait_begin)(void);
    void (*wait_end)(void);
} profiler = {sizeof profiler, 6, worker_enter, worker_leave, capture_context, NULL,
    task_begin, task_end, wait_begin, wait_end};

const void *hpcrun_rt_register(const void *runtime) {
    table = runtime;
    return &profiler;
}

const void *test_profiler_table(void) { return table; }
long test_profiler_enters(void) { return enters; }
long test_profiler_leaves(void) { return leaves; }
