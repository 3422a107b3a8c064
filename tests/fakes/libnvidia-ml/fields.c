/* Field values, the driver's sample buffers and GPM. */

#include "fake.h"

struct field { unsigned id, scope; long long at, latency; int type, code; union value value; };

static const struct { unsigned id; const char *key; int type; } fields[] = {
    {1, "ecc", 1}, {3, "ecc_corrected_volatile", 3}, {4, "ecc_uncorrected_volatile", 3},
    {5, "ecc_corrected_aggregate", 3}, {6, "ecc_uncorrected_aggregate", 3},
    {29, "retired_0", 1}, {30, "retired_1", 1}, {31, "retired_pending", 1},
    {74, "slowed_power_ns", 3}, {76, "slowed_sync_ns", 3}, {269, "slowed_soft_thermal_ns", 3},
    {270, "slowed_hard_thermal_ns", 3}, {271, "slowed_brake_ns", 3},
    {82, "mem_temp", 1}, {83, "energy_mj", 3}, {94, "pcie_replays", 1},
    {138, "nvlink_tx_kib", 3}, {139, "nvlink_rx_kib", 3}, {142, "rows_corrected", 1},
    {143, "rows_uncorrected", 1}, {144, "rows_pending", 1}, {145, "rows_failure", 1},
    {186, "power_instant_mw", 1}, {193, "shutdown_limit", 5}, {194, "slowdown_limit", 5}, {195, "memory_limit", 5},
    {197, "pcie_tx", 3}, {198, "pcie_rx", 3}, {230, "recovery", 1},
};

/* "TYPE NUMBER" or a number, which is an unsigned long long; "type 9 NUMBER" is of a type that
 * nobody knows yet, "error 4" this field's own verdict. */
static int parse(const char *words, struct field *out) {
    static const char *const types[] = {"double", "ui", "ul", "ull", "sll", "si"};
    const char *rest = words;
    out->type = 3;
    if (!strncmp(words, "error ", 6)) return atoi(words + 6);
    if (!strncmp(words, "type ", 5)) {
        out->type = (int)strtol(words + 5, (char **)&rest, 10);
        out->value.ull = strtoull(rest, NULL, 10);
        return SUCCESS;
    }
    for (int type = 0; type < 6; type++) {
        size_t length = strlen(types[type]);
        if (!strncmp(words, types[type], length) && words[length] == ' ') out->type = type, rest = words + length + 1;
    }
    if (out->type == 0) out->value.d = strtod(rest, NULL);
    else if (out->type == 1) out->value.ui = (unsigned)strtoul(rest, NULL, 10);
    else if (out->type == 5) out->value.si = (int)strtol(rest, NULL, 10);
    else if (out->type == 4) out->value.sll = strtoll(rest, NULL, 10);
    else out->value.ull = strtoull(rest, NULL, 10);
    return SUCCESS;
}

/* "gpu 0 field_138_2 ull 77": scope 2 of field 138; "gpu 0 field_230 ui 1": any scope. */
static int any_field(handle board, struct field *out) {
    char key[48];
    const char *words;
    snprintf(key, sizeof key, "field_%u_%u", out->id, out->scope);
    if (!(words = of(board, key))) {
        snprintf(key, sizeof key, "field_%u", out->id);
        words = of(board, key);
    }
    return words ? parse(words, out) : NOT_SUPPORTED;
}

static int one_field(handle board, struct field *out) {
    char key[32];
    if (any_field(board, out) != NOT_SUPPORTED) return any_field(board, out); /* said outright */
    if (out->id == 165) {
        snprintf(key, sizeof key, "nvlink_%u", out->scope);
        out->type = 1;
        return number(board, key, &out->value.ui);
    }
    snprintf(key, sizeof key, "field_%u", out->id);
    if (of(board, key)) return NOT_SUPPORTED; /* "error 3" */
    for (unsigned at = 0; at < sizeof fields / sizeof *fields; at++)
        if (fields[at].id == out->id && of(board, fields[at].key)) {
            out->type = out->id > 190 && of(board, "pcie_32_bits") ? 1 : fields[at].type;
            return out->type == 1 || out->type == 5 ? number(board, fields[at].key, &out->value.ui)
                : wide(board, fields[at].key, &out->value.ull);
        }
    return any_field(board, out);
}

int nvmlDeviceGetFieldValues(handle board, int count, struct field *out) {
    int good = 0;
    ENTER(board);
    if (count < 1 || !out) return INVALID_ARGUMENT;
    for (int at = 0; at < count; at++) {
        out[at].at = (long long)now_us();
        out[at].latency = 0;
        out[at].value.ull = 0;
        out[at].code = one_field(board, &out[at]);
        good += out[at].code == SUCCESS;
    }
    return good ? SUCCESS : NOT_SUPPORTED;
}

struct sample { u64 at; union value value; };

/* "samples 0 util 10 50 90": these, as new, to everyone who asks. With their times, "123456:10
 * 223456:50" in microseconds, only those that are newer than asked for. */
int nvmlDeviceGetSamples(handle board, int kind, u64 since, int *type, unsigned *count, struct sample *out) {
    static const char *const kinds[] = {
        "power", "util", "mem_util", "enc", "dec", "sm_clock", "mem_clock", "module_power", "jpg", "ofa"};
    char words[64];
    const char *rest;
    unsigned found = 0;
    ENTER(board);
    if (kind < 0 || kind > 9) return INVALID_ARGUMENT;
    snprintf(words, sizeof words, "samples %s %s", name_of(board), kinds[kind]);
    if (!(rest = find(words))) return NOT_SUPPORTED;
    *type = 1;
    for (char *end; *rest; rest = end) {
        struct sample one = { now_us() + found, { .ull = strtoull(rest, &end, 10) } };
        if (end == rest) break;
        if (*end == ':') {
            one.at = one.value.ull;
            one.value.ull = strtoull(end + 1, &end, 10);
            if (one.at <= since) continue;
        }
        if (out && found < *count) out[found] = one;
        found++;
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

/* "gpu 0 no_gpm_mig 1": a driver without the call. */
int nvmlGpmMigSampleGet(handle board, unsigned instance, struct gpm_sample *out) {
    ENTER(board);
    if (board > 255 || of(board, "no_gpm_mig")) return NOT_SUPPORTED;
    out->board = device_with(board, instance);
    out->at = now_us();
    return out->board ? SUCCESS : NOT_FOUND;
}

static const char *gpm_value(handle board, unsigned id) {
    char key[24];
    snprintf(key, sizeof key, "gpm_%u", id);
    return id == 2 ? of(board, "sm_active") : of(board, key);
}

int nvmlGpmMetricsGet(struct gpm_request *request) {
    struct gpm_sample *before = request->before, *after = request->after;
    const char *value;
    if (request->version != 1 || !before || !after) return INVALID_ARGUMENT;
    ENTER(after->board);
    if (after->at < before->at + 100000) return INVALID_ARGUMENT;
    for (unsigned at = 0; at < request->count; at++) {
        value = gpm_value(after->board, request->metrics[at].id);
        request->metrics[at].code = value ? SUCCESS : NOT_SUPPORTED;
        request->metrics[at].value = value ? strtod(value, NULL) : 0;
    }
    return SUCCESS;
}
