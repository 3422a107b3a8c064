/* Who is on a board. */

#include "fake.h"

struct process { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; };

/* A process that is gone gave its memory back; a zombie did too. A pid that another process has
 * by now is gone as well: field 22 of its stat is when it started. */
static int is_alive(unsigned pid, u64 started) {
    char path[32], stat[1024], state = 0;
    u64 ticks = 0;
    FILE *file;
    size_t length;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    if (!(file = fopen(path, "r"))) return 0;
    length = fread(stat, 1, sizeof stat - 1, file);
    fclose(file);
    stat[length] = 0;
    if (!strrchr(stat, ')')) return 0;
    sscanf(strrchr(stat, ')') + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s"
           " %*s %*s %*s %llu", &state, &ticks);
    return state != 'Z' && state != 'X' && ticks == started;
}

struct row { unsigned pid; long long memory; u64 started; int is_listed, holds; };

/* "PID BYTES [started=TICKS] [memory_stays] [stays_listed]"; without `started` it is there
 * whatever /proc says. */
static int parse(const char *rest, struct row *row) {
    const char *started;
    int is_there;
    if (sscanf(rest, "%u %lld", &row->pid, &row->memory) != 2) return 0;
    started = strstr(rest, "started=");
    row->started = started ? strtoull(started + 8, NULL, 10) : 0;
    is_there = !started || is_alive(row->pid, row->started);
    row->is_listed = is_there || strstr(rest, "stays_listed");
    row->holds = row->is_listed || strstr(rest, "memory_stays");
    return 1;
}

/* What _v3 was for a while: the library is built WIDE_PROCESSES then. nvitop knows such drivers by the one
 * symbol that they have and the one that they lack. */
struct wide_process { struct process process; u64 protected_memory; };

#ifdef WIDE_PROCESSES
int nvmlDeviceGetConfComputeMemSizeInfo(handle board, void *out) { ENTER(board); (void)out; return NOT_SUPPORTED; }
#endif

static void put(struct process *out, unsigned at, struct process one, int is_wide) {
    if (!is_wide) { out[at] = one; return; }
    ((struct wide_process *)(void *)out)[at] = (struct wide_process){ one, 0 };
}

static void add(handle board, const char *kind, unsigned room, unsigned *found, struct process *out, int is_wide) {
    char words[64];
    int at = 0;
    const char *rest;
    struct row row;
    struct process one = { 0, 0, ~0u, ~0u };
    snprintf(words, sizeof words, "process %s %s", name_of(board), kind);
    number(board, "gi", &one.gpu_instance);
    number(board, "ci", &one.compute_instance);
    while ((rest = line(&at, words))) {
        if (!parse(rest, &row) || !row.is_listed) continue;
        one.pid = row.pid;
        one.memory = (u64)row.memory;
        if (out && *found < room) put(out, *found, one, is_wide);
        ++*found;
    }
}

int is_used(handle device) {
    unsigned found = 0;
    add(device, "compute", 0, &found, NULL, 0);
    add(device, "graphics", 0, &found, NULL, 0);
    add(device, "mps", 0, &found, NULL, 0);
    return found > 0;
}

/* Of a board with MIG devices the list is theirs together. */
static int list(handle board, const char *kind, unsigned *count, struct process *out, int is_wide) {
    unsigned room = *count;
    *count = 0;
    add(board, kind, room, count, out, is_wide);
    if (board < 256)
        for (int slot = 1; slot <= SLOTS; slot++)
            if (is_device(board + slot * 256)) add(board + slot * 256, kind, room, count, out, is_wide);
    return *count && (!out || *count > room) ? INSUFFICIENT_SIZE : SUCCESS;
}

#ifdef WIDE_PROCESSES
enum { IS_WIDE = 1 };
#else
enum { IS_WIDE = 0 };
#endif

#define LIST(call, kind, is_wide) \
    int call(handle board, unsigned *count, struct process *out) { ENTER(board); return list(board, kind, count, out, is_wide); }

LIST(nvmlDeviceGetComputeRunningProcesses_v2, "compute", 0)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, "compute", IS_WIDE)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics", 0)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics", IS_WIDE)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps", 0)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps", IS_WIDE)

struct accounting { unsigned util, mem_util; u64 most, ms, started_us; unsigned is_running, reserved[5]; };

/* "accounted 0 PID UTIL MEM_UTIL BYTES MS START_US RUNNING", where "gpu 0 accounting 1". */
int nvmlDeviceGetAccountingStats(handle board, unsigned pid, struct accounting *out) {
    char words[64];
    const char *rest, *mode;
    ENTER(board);
    mode = of(board, "accounting");
    if (!mode || atoi(mode) != 1) return NOT_SUPPORTED;
    snprintf(words, sizeof words, "accounted %s %u", name_of(board), pid);
    if (!(rest = find(words))) return NOT_FOUND;
    memset(out, 0, sizeof *out);
    return sscanf(rest, "%u %u %llu %llu %llu %u", &out->util, &out->mem_util, &out->most, &out->ms,
                  &out->started_us, &out->is_running) == 6 ? SUCCESS : UNKNOWN;
}

enum { SEEN = 1024 };

static void sum(handle board, u64 *used, unsigned *pids, unsigned *count) {
    static const char *const kinds[] = {"compute", "graphics", "mps"};
    for (int kind = 0; kind < 3; kind++) {
        char words[64];
        int at = 0;
        const char *rest;
        struct row row;
        snprintf(words, sizeof words, "process %s %s", name_of(board), kinds[kind]);
        while ((rest = line(&at, words))) {
            unsigned seen = 0;
            if (!parse(rest, &row) || !row.holds || row.memory < 0) continue;
            while (seen < *count && pids[seen] != row.pid) seen++;
            if (seen < *count || *count == SEEN) continue; /* one process may be in two lists */
            pids[(*count)++] = row.pid;
            *used += (u64)row.memory;
        }
    }
}

/* With "gpu 0 mem_adds 1" a board's used memory is its own figure and what its processes hold. */
u64 mem_used(handle board, u64 base) {
    unsigned pids[SEEN], count = 0, adds = 0;
    if (number(board, "mem_adds", &adds) || !adds) return base;
    sum(board, &base, pids, &count);
    if (board < 256)
        for (int slot = 1; slot <= SLOTS; slot++)
            if (is_device(board + slot * 256)) sum(board + slot * 256, &base, pids, &count);
    return base;
}

struct busy { unsigned pid; u64 at; unsigned sm, memory, encoder, decoder; };

/* "busy 0 PID SM [MEMORY ENCODER DECODER]" */
int nvmlDeviceGetProcessUtilization(handle board, struct busy *out, unsigned *count, u64 since) {
    char words[64];
    int at = 0;
    unsigned found = 0, has_no_room = 0;
    const char *rest;
    ENTER(board);
    if (!number(board, "busy_none", &has_no_room) && has_no_room) { *count = 0; return SUCCESS; }
    if (!out) { *count = 100; return INSUFFICIENT_SIZE; } /* whatever is running: go-nvml#11 */
    snprintf(words, sizeof words, "busy %s", name_of(board));
    while ((rest = line(&at, words))) {
        struct busy row = { 0, now_us(), 0, 0, 0, 0 };
        int parts = sscanf(rest, "%u %u %u %u %u", &row.pid, &row.sm, &row.memory, &row.encoder, &row.decoder);
        if (parts >= 2 && row.at > since && found < *count) out[found++] = row;
    }
    *count = found;
    return found ? SUCCESS : NOT_FOUND;
}

struct busy_info { u64 at; unsigned pid, sm, memory, encoder, decoder, jpeg, ofa; };
struct busy_list { unsigned version, count; u64 since; struct busy_info *rows; };

/* "busy_new 0 PID SM [MEMORY ENCODER DECODER]": what new cards say, and only here. A fake without
 * such lines does not have the call. */
int nvmlDeviceGetProcessesUtilizationInfo(handle board, struct busy_list *out) {
    char words[64];
    int at = 0;
    unsigned found = 0;
    const char *rest;
    ENTER(board);
    if (!find("busy_new")) return NOT_SUPPORTED;
    if (out->version != 0x01000018) return VERSION_MISMATCH;
    if (!out->rows) { out->count = 100; return INSUFFICIENT_SIZE; }
    snprintf(words, sizeof words, "busy_new %s", name_of(board));
    while ((rest = line(&at, words))) {
        struct busy_info row = { now_us(), 0, 0, 0, 0, 0, 0, 0 };
        int parts = sscanf(rest, "%u %u %u %u %u", &row.pid, &row.sm, &row.memory, &row.encoder, &row.decoder);
        if (parts >= 2 && row.at > out->since && found < out->count) out->rows[found++] = row;
    }
    out->count = found;
    return found ? SUCCESS : NOT_FOUND;
}
