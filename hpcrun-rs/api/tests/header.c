/* hpcrun.h under a profiler in this program that knows lengths only, by a clock that the program moves: a
 * strand is its length and 1. */
#include "hpcrun.h"

#include <stdio.h>
#include <stdlib.h>

static uint8_t is_active;
static uint64_t length, lost, line, edge_seen;
static int live, depth;
static uint32_t current;
static const char *names[2];

#define CHECK(condition)                                              \
    do {                                                              \
        if (!(condition)) {                                           \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);   \
            exit(1);                                                  \
        }                                                             \
    } while (0)

static hpcrun_strand made(uint64_t l) { return live++, (hpcrun_strand)l + 1; }
static uint64_t taken(hpcrun_strand s) { return live--, (uint64_t)s - 1; }
static uint64_t longer(uint64_t a, uint64_t b) { return a > b ? a : b; }
static hpcrun_strand copy(uint64_t at) { return line = at, made(length); }
static void merge(hpcrun_strand s, uint64_t at, uint32_t edge) {
    line = at, edge_seen = edge;
    if (s) length = longer(length, taken(s));
    else lost++;
}
static hpcrun_strand begin(hpcrun_strand s, uint64_t at) {
    hpcrun_strand left = made(length);
    return line = at, length = taken(s), left;
}
static hpcrun_strand end(hpcrun_strand left, uint64_t at) {
    hpcrun_strand ended = made(length);
    return line = at, length = taken(left), ended;
}
static void end_and_merge(hpcrun_strand left, uint64_t at) {
    line = at, length = longer(length, taken(left));
}
static hpcrun_strand both(hpcrun_strand a, hpcrun_strand b) { return made(longer(taken(a), taken(b))); }
static hpcrun_strand share(hpcrun_strand s) { return made((uint64_t)s - 1); }
static void discard(hpcrun_strand s) { taken(s); }
static void publish(uint64_t at) { (void)at; }
static void pause_(void) { depth++; }
static void resume_(void) { depth--; }
static void restart(uint64_t at) { (void)at, length = 0; }
static uint32_t enter(uint32_t procedure) {
    uint32_t outer = current;
    return current = procedure, outer;
}
static uint32_t procedure(const char *name, size_t size) {
    uint32_t number = names[0] ? 2 : 1;
    CHECK(strlen(name) == size);
    return names[number - 1] = name, number;
}
static uint64_t source(const char *file, size_t size, uint32_t number) {
    CHECK(strlen(file) == size);
    return number;
}
static void lose(uint32_t cause) { lost += cause; }
static void control(uint32_t command) { is_active = (uint8_t)command; }
static size_t report(char *buffer, size_t size) {
    if (size >= 2) memcpy(buffer, "{}", 2);
    return 2;
}

#ifdef __cplusplus
extern "C"
#endif
const struct hpcrun_path *hpcrun_critical_path(void);
const struct hpcrun_path *hpcrun_critical_path(void) {
    static const struct hpcrun_path table = {
        sizeof table, 6,       &is_active, copy,    copy,    merge,   begin, end,       end_and_merge, both, share,
        discard,      discard, publish,    pause_,  resume_, restart, enter, procedure,     source, lose,
        control,      report,
    };
    return &table;
}

static int early(void) {
    HPCRUN_PROCEDURE("outer");
    CHECK(current == 1);
    HPCRUN_PROCEDURE_BEGIN("inner")
        CHECK(current == 2);
        return 7;
    HPCRUN_PROCEDURE_END
}

int main(void) {
    char text[2];
    CHECK(hpcrun_copy() == 0);
    {
        HPCRUN_PROCEDURE("none");
        CHECK(current == 0);
    }
    hpcrun_start();
    CHECK(is_active && early() == 7 && current == 0);
    CHECK(early() == 7 && strcmp(names[0], "outer") == 0 && strcmp(names[1], "inner") == 0);
    length = 10;
    hpcrun_strand spawned = hpcrun_copy();
    CHECK(line == __LINE__ - 1);
    length = 15;
    hpcrun_strand left = hpcrun_begin(spawned);
    CHECK(length == 10);
    length += 20;
    hpcrun_strand ended = hpcrun_end(left);
    CHECK(length == 15);
    hpcrun_strand one = hpcrun_share(ended);
    hpcrun_merge(hpcrun_both(ended, one), HPCRUN_BARRIER);
    CHECK(length == 30 && edge_seen == HPCRUN_BARRIER);
    left = hpcrun_begin(hpcrun_copy());
    length += 5;
    hpcrun_end_and_merge(left);
    CHECK(length == 35);
    hpcrun_discard(hpcrun_copy());
    hpcrun_finish(hpcrun_copy());
    hpcrun_pause();
    CHECK(depth == 1);
    hpcrun_resume();
    hpcrun_merge(0, HPCRUN_LOCK);
    hpcrun_lose();
    CHECK(lost == 3 && depth == 0 && live == 0);
    CHECK(hpcrun_report(text, 1) == 2 && hpcrun_report(text, 2) == 2 && text[1] == '}');
    hpcrun_stop();
    CHECK(!is_active && hpcrun_copy() == 0);
    return 0;
}
