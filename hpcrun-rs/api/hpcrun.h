/* What a C or C++ program can tell hpcrun-rs of itself: the names of its procedures; and the tasks of a runtime
 * of its own, and who waits for whom, where the profiler cannot see it.
 *
 *     void solve(void) {
 *         HPCRUN_PROCEDURE("solve");               // until the end of the block
 *         ...
 *     }
 *
 * Nothing is linked: the profiler's functions are looked up at run time, with dlsym (before glibc 2.34:
 * -ldl). Without a profiler, or for names and strands one that tracks (hpcrun-rs --critical-path), each call
 * costs a load and a branch.
 * Needs GCC or Clang. No function here may be called in a signal handler. The crate hpcrun-api is the same
 * for Rust, and describes it at length. */
#ifndef HPCRUN_H
#define HPCRUN_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A copy of a thread's or task's path at an event, on its way to whoever waits for that event; 0: none. It is
 * given to exactly one function, hpcrun_share aside. */
typedef uintptr_t hpcrun_strand;

/* Why one strand waits for another. */
enum hpcrun_edge {
    HPCRUN_JOIN = 2,
    HPCRUN_CHANNEL = 3,
    HPCRUN_LOCK = 4,
    HPCRUN_CONDITION = 5,
    HPCRUN_BARRIER = 6,
    HPCRUN_MESSAGE = 8
};

/* The profiler's table: hpcrun_abi::PathTable, version 6. */
struct hpcrun_path {
    uint32_t size;
    uint32_t version;
    const uint8_t *active;
    hpcrun_strand (*copy)(uint64_t at);
    hpcrun_strand (*fork)(uint64_t at);
    void (*merge)(hpcrun_strand, uint64_t at, uint32_t edge);
    hpcrun_strand (*begin)(hpcrun_strand spawned, uint64_t at);
    hpcrun_strand (*end)(hpcrun_strand left, uint64_t at);
    void (*end_and_merge)(hpcrun_strand left, uint64_t at);
    hpcrun_strand (*both)(hpcrun_strand, hpcrun_strand);
    hpcrun_strand (*share)(hpcrun_strand);
    void (*discard)(hpcrun_strand);
    void (*finish)(hpcrun_strand);
    void (*publish)(uint64_t at);
    void (*pause)(void);
    void (*resume)(void);
    void (*restart)(uint64_t at);
    uint32_t (*enter)(uint32_t procedure);
    uint32_t (*procedure)(const char *name, size_t length);
    uint64_t (*source)(const char *file, size_t length, uint32_t line);
    void (*lose)(uint32_t cause);
    void (*control)(uint32_t command);
    size_t (*report)(char *buffer, size_t size);
};

/* The table; NULL without a profiler that tracks. */
static inline const struct hpcrun_path *hpcrun_table(void) {
    static const struct hpcrun_path *table;
    static int is_known;
    if (!__atomic_load_n(&is_known, __ATOMIC_ACQUIRE)) {
        const struct hpcrun_path *(*find)(void);
        *(void **)&find = dlsym((void *)0, "hpcrun_critical_path");
        const struct hpcrun_path *found = find ? find() : NULL;
        if (found && (found->version != 6 || found->size < sizeof *found)) {
            found = NULL;
        }
        __atomic_store_n(&table, found, __ATOMIC_RELAXED);
        __atomic_store_n(&is_known, 1, __ATOMIC_RELEASE);
    }
    return __atomic_load_n(&table, __ATOMIC_RELAXED);
}

/* The table, while the path is tracked. */
static inline const struct hpcrun_path *hpcrun_active(void) {
    const struct hpcrun_path *path = hpcrun_table();
    return path && __atomic_load_n(path->active, __ATOMIC_RELAXED) ? path : NULL;
}

static inline uint64_t hpcrun_place_(const char *file, uint32_t line, uint64_t *known) {
    const struct hpcrun_path *path = hpcrun_active();
    uint64_t place = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (path && !place) {
        place = path->source(file, strlen(file), line);
        __atomic_store_n(known, place, __ATOMIC_RELAXED);
    }
    return place;
}

/* This line of the source. */
#define HPCRUN_HERE                                      \
    __extension__({                                      \
        static uint64_t hpcrun_known_;                   \
        hpcrun_place_(__FILE__, __LINE__, &hpcrun_known_); \
    })

#define HPCRUN_NOT_ENTERED_ UINT32_MAX

static inline uint32_t hpcrun_enter_(const char *name, uint32_t *known) {
    const struct hpcrun_path *path = hpcrun_active();
    if (!path) {
        return HPCRUN_NOT_ENTERED_;
    }
    uint32_t number = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (!number) {
        number = path->procedure(name, strlen(name));
        __atomic_store_n(known, number, __ATOMIC_RELAXED);
    }
    if (!number) {
        path->lose(3);
    }
    return path->enter(number);
}

static inline void hpcrun_leave_(const uint32_t *outer) {
    if (*outer != HPCRUN_NOT_ENTERED_) {
        hpcrun_table()->enter(*outer);
    }
}

/* What follows, to the end of the block, is the procedure of that name, a constant. At most one a block. */
#define HPCRUN_PROCEDURE(name)                                                 \
    static uint32_t hpcrun_procedure_;                                         \
    __attribute__((cleanup(hpcrun_leave_), unused)) const uint32_t hpcrun_outer_ = \
        hpcrun_enter_(name, &hpcrun_procedure_)

/* The same for a part of a block. It may be left by return, break or continue. */
#define HPCRUN_PROCEDURE_BEGIN(name) { HPCRUN_PROCEDURE(name);
#define HPCRUN_PROCEDURE_END }

/* A copy of the current strand, at an event for which another one may wait: a spawn, a send, a release, an
 * arrival at a barrier. 0 while nothing is tracked. */
#define hpcrun_copy() hpcrun_copy_(HPCRUN_HERE)
static inline hpcrun_strand hpcrun_copy_(uint64_t at) {
    const struct hpcrun_path *path = hpcrun_active();
    return path ? path->copy(at) : 0;
}

/* The current strand has waited for the event of another one: the longer of both goes on. 0 while the path is
 * tracked is counted as a lost edge. */
#define hpcrun_merge(strand, edge) hpcrun_merge_(strand, HPCRUN_HERE, edge)
static inline void hpcrun_merge_(hpcrun_strand strand, uint64_t at, enum hpcrun_edge edge) {
    const struct hpcrun_path *path = strand ? hpcrun_table() : hpcrun_active();
    if (path) {
        path->merge(strand, at, (uint32_t)edge);
    }
}

/* Leaves the current strand and begins a spawned one, from its spawner's copy. The result: for hpcrun_end. */
#define hpcrun_begin(spawned) hpcrun_begin_(spawned, HPCRUN_HERE)
static inline hpcrun_strand hpcrun_begin_(hpcrun_strand spawned, uint64_t at) {
    const struct hpcrun_path *path = spawned ? hpcrun_table() : hpcrun_active();
    return path ? path->begin(spawned, at) : 0;
}

/* Ends the current strand and goes on with the one that was left for it. The result is for whoever waits for
 * the end, or for hpcrun_finish. */
#define hpcrun_end(left) hpcrun_end_(left, HPCRUN_HERE)
static inline hpcrun_strand hpcrun_end_(hpcrun_strand left, uint64_t at) {
    return left ? hpcrun_table()->end(left, at) : 0;
}

/* The same where the one that was left waits. */
#define hpcrun_end_and_merge(left) hpcrun_end_and_merge_(left, HPCRUN_HERE)
static inline void hpcrun_end_and_merge_(hpcrun_strand left, uint64_t at) {
    if (left) {
        hpcrun_table()->end_and_merge(left, at);
    }
}

/* Of two strands for which the same one waits, leaves one. */
static inline hpcrun_strand hpcrun_both(hpcrun_strand one, hpcrun_strand other) {
    return one && other ? hpcrun_table()->both(one, other) : one | other;
}

/* The same strand once more. */
static inline hpcrun_strand hpcrun_share(hpcrun_strand strand) {
    return strand ? hpcrun_table()->share(strand) : 0;
}

/* Forgets a strand for which nobody waits. */
static inline void hpcrun_discard(hpcrun_strand strand) {
    if (strand) {
        hpcrun_table()->discard(strand);
    }
}

/* A strand has ended for which nobody waits. */
static inline void hpcrun_finish(hpcrun_strand strand) {
    if (strand) {
        hpcrun_table()->finish(strand);
    }
}

/* A record of a task that runs. */
struct hpcrun_record {
    uint64_t words[12];
};

/* What the profiler offers a runtime: hpcrun_abi::ProfilerTable, version 6. */
struct hpcrun_profiler {
    uint32_t size;
    uint32_t version;
    void (*worker_enter)(const uint8_t *state);
    void (*worker_leave)(const uint8_t *state);
    uintptr_t (*capture_context)(void);
    const struct hpcrun_path *path;
    void (*task_begin)(struct hpcrun_record *, uintptr_t context);
    void (*task_end)(struct hpcrun_record *);
    void (*wait_begin)(void);
    void (*wait_end)(void);
};

/* What a runtime tells the profiler: hpcrun_abi::RuntimeTable. Of one whose threads tell of their tasks and
 * waits, only its name. */
struct hpcrun_runtime {
    uint32_t size;
    uint32_t version;
    const char *name;
    const uint32_t *n_working, *n_workers;
    const void *others[7];
    uint32_t tells;
};

/* The table; NULL without a profiler. */
static inline const struct hpcrun_profiler *hpcrun_profiler(void) {
    static const uint32_t none = 0;
    static const struct hpcrun_runtime runtime = {sizeof runtime, 6, "hpcrun.h", &none, &none, {0}, 1};
    static const struct hpcrun_profiler *table;
    static int is_known;
    if (!__atomic_load_n(&is_known, __ATOMIC_ACQUIRE)) {
        const struct hpcrun_profiler *(*enter)(const struct hpcrun_runtime *);
        *(void **)&enter = dlsym((void *)0, "hpcrun_rt_register");
        const struct hpcrun_profiler *found = enter ? enter(&runtime) : NULL;
        if (found && (found->version != 6 || found->size < sizeof *found)) {
            found = NULL;
        }
        __atomic_store_n(&table, found, __ATOMIC_RELAXED);
        __atomic_store_n(&is_known, 1, __ATOMIC_RELEASE);
    }
    return __atomic_load_n(&table, __ATOMIC_RELAXED);
}

/* A task that was made: where, and on which strand. It is given to exactly one run. */
typedef struct hpcrun_task {
    uintptr_t context;
    hpcrun_strand strand;
} hpcrun_task;

/* The calling function makes a task. Costs about as much as a sample. */
#define hpcrun_make() hpcrun_make_(HPCRUN_HERE)
__attribute__((always_inline)) static inline hpcrun_task hpcrun_make_(uint64_t at) {
    const struct hpcrun_profiler *profiler = hpcrun_profiler();
    hpcrun_task task = {profiler ? profiler->capture_context() : 0, hpcrun_copy_(at)};
    return task;
}

/* A task that runs, in the frame of the function that runs it. */
struct hpcrun_run {
    struct hpcrun_record record;
    hpcrun_strand left;
};

/* The calling function begins a task. What it calls (not inlined) until hpcrun_run_end is the task, and stands
 * under who made it. */
#define hpcrun_run_begin(run, task) hpcrun_run_begin_(run, task, HPCRUN_HERE)
__attribute__((always_inline)) static inline void hpcrun_run_begin_(struct hpcrun_run *run, hpcrun_task task,
                                                                    uint64_t at) {
    const struct hpcrun_profiler *profiler = hpcrun_profiler();
    if (profiler) {
        profiler->task_begin(&run->record, task.context);
    }
    run->left = hpcrun_begin_(task.strand, at);
}

/* The task ends. The result is for whoever waits for it (hpcrun_merge), or for hpcrun_finish. */
#define hpcrun_run_end(run) hpcrun_run_end_(run, HPCRUN_HERE)
static inline hpcrun_strand hpcrun_run_end_(struct hpcrun_run *run, uint64_t at) {
    const struct hpcrun_profiler *profiler = hpcrun_profiler();
    if (profiler) {
        profiler->task_end(&run->record);
    }
    return hpcrun_end_(run->left, at);
}

/* The thread waits, or looks for work, until hpcrun_resume; a task that it runs meanwhile is work. Who calls
 * this tells the wait's edges too. */
static inline void hpcrun_pause(void) {
    const struct hpcrun_profiler *profiler = hpcrun_profiler();
    if (profiler) {
        profiler->wait_begin();
    }
    const struct hpcrun_path *path = hpcrun_active();
    if (path) {
        path->pause();
    }
}

/* What follows is activity again, even if the tracking has been stopped meanwhile. */
static inline void hpcrun_resume(void) {
    const struct hpcrun_profiler *profiler = hpcrun_profiler();
    if (profiler) {
        profiler->wait_end();
    }
    const struct hpcrun_path *path = hpcrun_table();
    if (path) {
        path->resume();
    }
}

/* Counts an edge to this thread of which the other side is not known. */
static inline void hpcrun_lose(void) {
    const struct hpcrun_path *path = hpcrun_active();
    if (path) {
        path->lose(2);
    }
}

/* Forgets what was tracked, and tracks from now on, in the whole process. */
static inline void hpcrun_start(void) {
    const struct hpcrun_path *path = hpcrun_table();
    if (path) {
        path->control(1);
        path->restart(0);
    }
}

/* The path so far, as the JSON of `hpcprof-rs critical-path`, if it fits into the buffer; no NUL follows. The
 * result is its length in bytes; 0 without a profiler that tracks. */
static inline size_t hpcrun_report(char *buffer, size_t size) {
    const struct hpcrun_path *path = hpcrun_active();
    if (path) {
        path->publish(0);
    }
    path = hpcrun_table();
    return path ? path->report(buffer, size) : 0;
}

/* Stops the tracking. The calling thread's path ends here, for later reports. */
static inline void hpcrun_stop(void) {
    const struct hpcrun_path *path = hpcrun_active();
    if (path) {
        path->publish(0);
        path->control(0);
    }
}

#ifdef __cplusplus
}

#include <utility>

namespace hpcrun {

/* A closure that runs as a task of whoever has made it: pool.submit(hpcrun::task(closure)). Run it once. */
template <class Closure> class task {
  public:
    __attribute__((always_inline)) explicit task(Closure closure) : made(hpcrun_make_(0)), closure(std::move(closure)) {}
    decltype(auto) operator()() {
        const running guard(made);
        return call(closure);
    }

  private:
    struct running {
        hpcrun_run run;
        __attribute__((always_inline)) explicit running(hpcrun_task made) { hpcrun_run_begin_(&run, made, 0); }
        ~running() { hpcrun_finish(hpcrun_run_end_(&run, 0)); }
    };
    __attribute__((noinline)) static decltype(auto) call(Closure &closure) { return closure(); }

    hpcrun_task made;
    Closure closure;
};

}
#endif

#endif
