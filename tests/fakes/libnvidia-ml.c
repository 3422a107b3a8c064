/* A libnvidia-ml.so.1 that says what a text file says. The file ($FAKE_NVML) is read again
 * whenever it changes, so a test can change the machine under a running program:
 *
 *   driver 550.54.15              set KEY VALUE for all that follows "gpu"
 *   gpu 0 uuid GPU-1f...          a key that is not there makes its call NOT_SUPPORTED
 *   gpu 0 util 37
 *   samples 0 util 10 50 90       what nvmlDeviceGetSamples has (util, power)
 *   process 0 compute 4711 1048576   (memory -1: unknown)
 *   busy 0 4711 40                a row of nvmlDeviceGetProcessUtilization
 *   error 0 nvmlDeviceGetFanSpeed 3     (* for all boards) return this code
 *   hang nvmlDeviceGetName        this call does not return while the line is there
 *   lost 0                        GPU_IS_LOST from every call on this board
 *
 * Layouts as in nvml.h; nvmlDeviceGetConfComputeMemSizeInfo must not be exported, see
 * nvitop's detection of the short-lived 32-byte process struct. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15, VERSION_MISMATCH = 25 };
enum { GPUS = 16, LINES = 2048, WIDTH = 512, ALL = -1 };

typedef unsigned long long u64;
typedef long handle; /* board number + 1 */

static char lines[LINES][WIDTH];
static int count_lines, initialized;
static struct stat seen;

static void reload(void) {
    const char *path = getenv("FAKE_NVML");
    struct stat now;
    FILE *file;
    if (!path || stat(path, &now)) return;
    if (now.st_ino == seen.st_ino && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec
        && now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_size == seen.st_size) return;
    if (!(file = fopen(path, "r"))) return;
    seen = now;
    for (count_lines = 0; count_lines < LINES && fgets(lines[count_lines], WIDTH, file);)
        lines[count_lines][strcspn(lines[count_lines], "\n")] = 0, count_lines++;
    fclose(file);
}

/* The rest of the first line from *at on that begins with these words. */
static const char *line(int *at, const char *words) {
    size_t length = strlen(words);
    for (; *at < count_lines; ++*at)
        if (!strncmp(lines[*at], words, length) && (lines[*at][length] == ' ' || !lines[*at][length])) {
            const char *rest = lines[(*at)++] + length;
            return *rest ? rest + 1 : rest;
        }
    return NULL;
}

static const char *find(const char *words) { int at = 0; return line(&at, words); }

static const char *of(handle board, const char *key) {
    char words[128];
    snprintf(words, sizeof words, "gpu %ld %s", board - 1, key);
    return find(words);
}

static int boards(void) {
    int number = 0;
    while (number < GPUS && of(number + 1, "uuid")) number++;
    return number;
}

static int hangs(const char *call) {
    char words[128];
    snprintf(words, sizeof words, "hang %s", call);
    return find(words) != NULL;
}

static int verdict(const char *board, const char *call) {
    char words[160];
    const char *code;
    snprintf(words, sizeof words, "error %s %s", board, call);
    code = find(words);
    return code ? atoi(code) : SUCCESS;
}

static int enter(handle board, const char *call) {
    char name[16], words[32];
    int code;
    reload();
    while (hangs(call)) { usleep(20000); reload(); }
    if ((code = verdict("*", call))) return code;
    if (board == ALL) return SUCCESS;
    if (!initialized) return UNINITIALIZED;
    if (board < 1 || board > GPUS) return INVALID_ARGUMENT;
    snprintf(words, sizeof words, "lost %ld", board - 1);
    if (find(words)) return GPU_IS_LOST;
    snprintf(name, sizeof name, "%ld", board - 1);
    return verdict(name, call);
}

#define ENTER(board) do { int code_ = enter(board, __func__); if (code_) return code_; } while (0)

static int text(const char *value, char *out, unsigned size) {
    if (!value) return NOT_SUPPORTED;
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}

static int number(handle board, const char *key, unsigned *out) {
    const char *value = of(board, key);
    if (!value) return NOT_SUPPORTED;
    *out = (unsigned)strtoul(value, NULL, 10);
    return SUCCESS;
}

static int wide(handle board, const char *key, u64 *out) {
    const char *value = of(board, key);
    if (!value) return NOT_SUPPORTED;
    *out = strtoull(value, NULL, 10);
    return SUCCESS;
}

static u64 now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (u64)now.tv_sec * 1000000 + (u64)now.tv_nsec / 1000;
}

const char *nvmlErrorString(int code) {
    static char words[32];
    snprintf(words, sizeof words, "fake error %d", code);
    return words;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; ENTER(ALL); initialized++; return SUCCESS; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { if (initialized) initialized--; return SUCCESS; }

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    ENTER(ALL);
    return text(find("driver"), out, size);
}

int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(ALL); *count = (unsigned)boards(); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *out) {
    if ((int)index >= boards()) return INVALID_ARGUMENT;
    ENTER((handle)index + 1);
    *out = (handle)index + 1;
    return SUCCESS;
}

int nvmlDeviceGetIndex(handle board, unsigned *out) { ENTER(board); *out = (unsigned)board - 1; return SUCCESS; }
int nvmlDeviceGetUUID(handle board, char *out, unsigned size) { ENTER(board); return text(of(board, "uuid"), out, size); }
int nvmlDeviceGetName(handle board, char *out, unsigned size) { ENTER(board); return text(of(board, "name"), out, size); }

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

int nvmlDeviceGetPciInfo_v3(handle board, struct pci *out) {
    ENTER(board);
    memset(out, 0, sizeof *out);
    return text(of(board, "pci"), out->bus_id, sizeof out->bus_id);
}

struct utilization { unsigned gpu, memory; };

int nvmlDeviceGetUtilizationRates(handle board, struct utilization *out) {
    int code;
    ENTER(board);
    code = number(board, "util", &out->gpu);
    return code ? code : number(board, "mem_util", &out->memory);
}

struct memory { u64 total, free, used; };
struct memory_v2 { unsigned version; u64 total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo(handle board, struct memory *out) {
    int code;
    ENTER(board);
    code = wide(board, "mem_total", &out->total);
    if (!code) code = wide(board, "mem_used", &out->used);
    out->free = out->total - out->used;
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(handle board, struct memory_v2 *out) {
    int code;
    ENTER(board);
    if (out->version != 0x02000028) return VERSION_MISMATCH;
    out->reserved = 0;
    code = wide(board, "mem_total", &out->total);
    if (!code) code = wide(board, "mem_used", &out->used);
    out->free = out->total - out->used;
    return code;
}

struct temperature { unsigned version, sensor; int degrees; };

int nvmlDeviceGetTemperatureV(handle board, struct temperature *out) {
    ENTER(board);
    return number(board, "temp", (unsigned *)&out->degrees);
}

int nvmlDeviceGetTemperature(handle board, unsigned sensor, unsigned *out) {
    (void)sensor; ENTER(board); return number(board, "temp", out);
}

int nvmlDeviceGetTemperatureThreshold(handle board, unsigned which, unsigned *out) {
    ENTER(board);
    return which > 1 ? NOT_SUPPORTED : number(board, which ? "slowdown" : "shutdown", out);
}

static const char *clock_key(unsigned kind, const char *sm, const char *mem) {
    return kind == 1 ? sm : kind == 2 ? mem : "no such clock";
}

int nvmlDeviceGetClockInfo(handle board, unsigned kind, unsigned *out) {
    ENTER(board); return number(board, clock_key(kind, "sm_clock", "mem_clock"), out);
}

int nvmlDeviceGetMaxClockInfo(handle board, unsigned kind, unsigned *out) {
    ENTER(board); return number(board, clock_key(kind, "sm_clock_max", "mem_clock_max"), out);
}

int nvmlDeviceGetFanSpeed(handle board, unsigned *out) { ENTER(board); return number(board, "fan", out); }
int nvmlDeviceGetPowerUsage(handle board, unsigned *out) { ENTER(board); return number(board, "power_mw", out); }
int nvmlDeviceGetEnforcedPowerLimit(handle board, unsigned *out) { ENTER(board); return number(board, "power_limit_mw", out); }
int nvmlDeviceGetPowerManagementLimit(handle board, unsigned *out) { ENTER(board); return number(board, "power_limit_mw", out); }
int nvmlDeviceGetTotalEnergyConsumption(handle board, u64 *out) { ENTER(board); return wide(board, "energy_mj", out); }
int nvmlDeviceGetCurrentClocksEventReasons(handle board, u64 *out) { ENTER(board); return wide(board, "throttle", out); }

union value { double d; unsigned ui; unsigned long ul; u64 ull; long long sll; };
struct field { unsigned id, scope; long long at, latency; int type, code; union value value; };

int nvmlDeviceGetFieldValues(handle board, int count, struct field *out) {
    int good = 0;
    ENTER(board);
    for (int at = 0; at < count; at++) {
        unsigned id = out[at].id;
        const char *key = id == 82 ? "mem_temp" : id == 83 ? "energy_mj" : id == 186 ? "power_instant_mw"
            : id == 197 ? "pcie_tx" : id == 198 ? "pcie_rx" : "no such field";
        out[at].at = (long long)now_us();
        out[at].type = id == 82 || id == 186 || of(board, "pcie_32_bits") ? 1 : 3;
        out[at].value.ull = 0;
        out[at].code = out[at].type == 1 ? number(board, key, &out[at].value.ui) : wide(board, key, &out[at].value.ull);
        good += out[at].code == SUCCESS;
    }
    return good ? SUCCESS : NOT_SUPPORTED;
}

struct sample { u64 at; union value value; };

int nvmlDeviceGetSamples(handle board, int kind, u64 since, int *type, unsigned *count, struct sample *out) {
    char words[64];
    const char *rest;
    unsigned found = 0;
    (void)since;
    ENTER(board);
    if (kind > 1) return NOT_SUPPORTED;
    snprintf(words, sizeof words, "samples %ld %s", board - 1, kind ? "util" : "power");
    if (!(rest = find(words))) return NOT_SUPPORTED;
    *type = 1;
    for (char *end; *rest; rest = end) {
        unsigned value = (unsigned)strtoul(rest, &end, 10);
        if (end == rest) break;
        if (out && found < *count) {
            out[found].at = now_us() + found;
            out[found].value.ull = 0;
            out[found].value.ui = value;
        }
        found++;
    }
    *count = found;
    return found ? SUCCESS : NOT_FOUND;
}

struct process { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; };

static int list(handle board, const char *kind, unsigned *count, struct process *out) {
    char words[64];
    int at = 0;
    unsigned found = 0, room = *count;
    const char *rest;
    snprintf(words, sizeof words, "process %ld %s", board - 1, kind);
    while ((rest = line(&at, words))) {
        unsigned pid;
        long long memory;
        if (sscanf(rest, "%u %lld", &pid, &memory) != 2) continue;
        if (out && found < room) {
            struct process row = { pid, (u64)memory, ~0u, ~0u };
            out[found] = row;
        }
        found++;
    }
    *count = found;
    return found && (!out || found > room) ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(handle board, unsigned *count, struct process *out) { ENTER(board); return list(board, "compute", count, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(handle board, unsigned *count, struct process *out) { ENTER(board); return list(board, "graphics", count, out); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(handle board, unsigned *count, struct process *out) { ENTER(board); return list(board, "mps", count, out); }

struct busy { unsigned pid; u64 at; unsigned sm, memory, encoder, decoder; };

int nvmlDeviceGetProcessUtilization(handle board, struct busy *out, unsigned *count, u64 since) {
    char words[64];
    int at = 0;
    unsigned found = 0;
    const char *rest;
    ENTER(board);
    if (!out) { *count = 100; return INSUFFICIENT_SIZE; } /* whatever is running: go-nvml#11 */
    snprintf(words, sizeof words, "busy %ld", board - 1);
    while ((rest = line(&at, words))) {
        struct busy row = { 0, now_us(), 0, 0, 0, 0 };
        if (sscanf(rest, "%u %u", &row.pid, &row.sm) == 2 && row.at > since && found < *count) out[found++] = row;
    }
    *count = found;
    return found ? SUCCESS : NOT_FOUND;
}

struct gpm_support { unsigned version, supported; };
struct gpm_metric { unsigned id; int code; double value; const char *names[3]; };
struct gpm_request { unsigned version, count; void *before, *after; struct gpm_metric metrics[]; };
struct gpm_sample { handle board; u64 at; };

int nvmlGpmQueryDeviceSupport(handle board, struct gpm_support *out) {
    ENTER(board);
    out->supported = of(board, "sm_active") != NULL;
    return SUCCESS;
}

int nvmlGpmSampleAlloc(struct gpm_sample **out) { *out = calloc(1, sizeof **out); return SUCCESS; }
int nvmlGpmSampleFree(struct gpm_sample *sample) { free(sample); return SUCCESS; }

int nvmlGpmSampleGet(handle board, struct gpm_sample *out) {
    ENTER(board);
    out->board = board;
    out->at = now_us();
    return SUCCESS;
}

int nvmlGpmMetricsGet(struct gpm_request *request) {
    struct gpm_sample *before = request->before, *after = request->after;
    const char *value;
    if (request->version != 1 || !before || !after) return INVALID_ARGUMENT;
    ENTER(after->board);
    if (after->at < before->at + 100000) return INVALID_ARGUMENT;
    for (unsigned at = 0; at < request->count; at++) {
        value = request->metrics[at].id == 2 ? of(after->board, "sm_active") : NULL;
        request->metrics[at].code = value ? SUCCESS : NOT_SUPPORTED;
        request->metrics[at].value = value ? strtod(value, NULL) : 0;
    }
    return SUCCESS;
}
