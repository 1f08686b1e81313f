/* Exact marks for hpcrun-rs --critical-path, in C and C++.
 *
 * HPCRUN_PROCEDURE("name") at the start of a block: until its end, the thread's activity belongs to that
 * procedure, and so does that of threads and tasks that it spawns there. The report tells how much of it lies
 * on the critical path, and how long the path would be without it. Time belongs to the innermost mark.
 *
 * There is nothing to link: the profiler is looked up when the program runs, and without it a mark costs a
 * load and a comparison. A name must live as long as the program.
 */
#ifndef HPCRUN_H
#define HPCRUN_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The functions by which a program tells the profiler who waits for whom; hpcrun-abi's PathTable has what
 * each of them does. A strand of 0 is none, a site is a code address or 0, a procedure of 0 is none. */
typedef struct hpcrun_path_table {
    uint32_t size, version;
    const volatile uint8_t *active;
    uintptr_t (*copy)(uint64_t at);
    void (*merge)(uintptr_t strand, uint64_t at, uint32_t edge);
    uintptr_t (*begin)(uintptr_t spawned, uint64_t at);
    uintptr_t (*end)(uintptr_t left, uint64_t at);
    void (*end_and_merge)(uintptr_t left, uint64_t at);
    uintptr_t (*both)(uintptr_t first, uintptr_t second);
    uintptr_t (*share)(uintptr_t strand);
    void (*discard)(uintptr_t strand);
    void (*finish)(uintptr_t strand);
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
} hpcrun_path_table;

enum { HPCRUN_ABI_VERSION = 3 };

/* The profiler's functions; a null pointer without one that tracks. */
static inline const hpcrun_path_table *hpcrun_path(void)
{
    static const hpcrun_path_table *volatile known;
    static volatile int looked;
    if (!looked) {
        const hpcrun_path_table *(*find)(void);
        const hpcrun_path_table *table = NULL;
        *(void **)&find = dlsym(RTLD_DEFAULT, "hpcrun_critical_path");
        if (find != NULL)
            table = find();
        if (table != NULL && table->version == HPCRUN_ABI_VERSION && table->size >= sizeof *table)
            known = table;
        looked = 1;
    }
    return known;
}

/* Enters a procedure, by its name and a place for its number. Returns the one that is left. */
static inline uint32_t hpcrun_enter(const char *name, volatile uint32_t *number)
{
    const hpcrun_path_table *path = hpcrun_path();
    if (path == NULL || !*path->active)
        return UINT32_MAX;
    if (*number == 0)
        *number = path->procedure(name, strlen(name));
    return path->enter(*number);
}

static inline void hpcrun_leave(const uint32_t *left)
{
    if (*left != UINT32_MAX)
        hpcrun_path()->enter(*left);
}

#define HPCRUN_PROCEDURE(name)                                                                               \
    static volatile uint32_t hpcrun_number;                                                                  \
    __attribute__((cleanup(hpcrun_leave), unused)) uint32_t hpcrun_left = hpcrun_enter(name, &hpcrun_number)

#ifdef __cplusplus
}
#endif

#endif
