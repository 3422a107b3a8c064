/* What a board is, and its plain readings. */

#include "fake.h"

int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(ALL); *count = (unsigned)boards(); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *out) {
    ENTER((handle)index + 1);
    if ((int)index >= boards()) return INVALID_ARGUMENT;
    *out = (handle)index + 1;
    return SUCCESS;
}

static int is_called(handle board, const char *key, const char *value) {
    const char *own = of(board, key);
    return own && !strcasecmp(own, value);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, handle *out) {
    ENTER(ALL);
    for (handle board = 1; board <= boards(); board++)
        for (handle each = board; each < (SLOTS + 1) * 256; each += 256)
            if (is_called(each, "uuid", uuid)) { *out = each; return SUCCESS; }
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, handle *out) {
    ENTER(ALL);
    for (handle board = 1; board <= boards(); board++)
        if (is_called(board, "pci", bus_id)) { *out = board; return SUCCESS; }
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(handle board, unsigned *out) {
    ENTER(board);
    *out = (unsigned)(board / 256 ? board / 256 : board) - 1;
    return SUCCESS;
}

TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
NUMBER(nvmlDeviceGetMinorNumber, "minor")
NUMBER(nvmlDeviceGetBrand, "brand")
NUMBER(nvmlDeviceGetArchitecture, "architecture")
PAIR(nvmlDeviceGetCudaComputeCapability, "capability_major", "capability_minor")

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

int nvmlDeviceGetPciInfo_v3(handle board, struct pci *out) {
    ENTER(board);
    memset(out, 0, sizeof *out);
    return text(of(parent_of(board), "pci"), out->bus_id, sizeof out->bus_id);
}

struct utilization { unsigned gpu, memory; };

int nvmlDeviceGetUtilizationRates(handle board, struct utilization *out) {
    int code;
    ENTER(board);
    code = number(board, "util", &out->gpu);
    return code ? code : number(board, "mem_util", &out->memory);
}

static int codec(handle board, const char *key, unsigned *out, unsigned *period_us) {
    *period_us = 167000;
    return number(board, key, out);
}

int nvmlDeviceGetEncoderUtilization(handle board, unsigned *out, unsigned *us) { ENTER(board); return codec(board, "enc", out, us); }
int nvmlDeviceGetDecoderUtilization(handle board, unsigned *out, unsigned *us) { ENTER(board); return codec(board, "dec", out, us); }
int nvmlDeviceGetJpgUtilization(handle board, unsigned *out, unsigned *us) { ENTER(board); return codec(board, "jpg", out, us); }
int nvmlDeviceGetOfaUtilization(handle board, unsigned *out, unsigned *us) { ENTER(board); return codec(board, "ofa", out, us); }

struct memory { u64 total, free, used; };
struct memory_v2 { unsigned version; u64 total, reserved, free, used; };

/* The second version counts what the driver keeps for itself apart, the first as used:
 * rust-nvml/nvml-wrapper#57 saw 7.8 MB and 912 MB on one A100. */
static int memory_of(handle board, struct memory_v2 *out) {
    int code = wide(board, "mem_total", &out->total);
    if (!code) code = wide(board, "mem_used", &out->used);
    if (code) return code;
    if (wide(board, "mem_reserved", &out->reserved)) out->reserved = 0;
    out->used = mem_used(board, out->used);
    if (out->used > out->total - out->reserved) out->used = out->total - out->reserved;
    out->free = out->total - out->reserved - out->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(handle board, struct memory_v2 *out) {
    u64 hard, used;
    int code;
    ENTER(board);
    if (out->version != 0x02000028) return VERSION_MISMATCH;
    if (!(code = memory_of(board, out)) && limit_of_caller(board, &hard, &used)) {
        out->total = hard;
        out->used = used;
        out->free = hard > used ? hard - used : 0;
    }
    return code;
}

int nvmlDeviceGetMemoryInfo(handle board, struct memory *out) {
    struct memory_v2 both;
    int code;
    ENTER(board);
    if (!(code = memory_of(board, &both)))
        *out = (struct memory){ both.total, both.free, both.used + both.reserved };
    return code;
}

int nvmlDeviceGetBAR1MemoryInfo(handle board, struct memory *out) {
    int code;
    ENTER(board);
    code = wide(board, "bar1_total", &out->total);
    if (!code) code = wide(board, "bar1_used", &out->used);
    if (!code) out->free = out->total - out->used;
    return code;
}

struct temperature { unsigned version, sensor; int degrees; };

int nvmlDeviceGetTemperatureV(handle board, struct temperature *out) {
    ENTER(board);
    return out->version == 0x0100000C ? number(board, "temp", (unsigned *)&out->degrees) : VERSION_MISMATCH;
}

int nvmlDeviceGetTemperature(handle board, unsigned sensor, unsigned *out) {
    ENTER(board);
    return sensor ? INVALID_ARGUMENT : number(board, "temp", out);
}

int nvmlDeviceGetTemperatureThreshold(handle board, unsigned which, unsigned *out) {
    static const char *const keys[] = {"shutdown", "slowdown", "mem_temp_max", "gpu_temp_max"};
    ENTER(board);
    return which < 4 ? number(board, keys[which], out) : NOT_SUPPORTED;
}

struct margin { unsigned version; int degrees; };

int nvmlDeviceGetMarginTemperature(handle board, struct margin *out) {
    ENTER(board);
    return out->version == 0x01000008 ? number(board, "temp_margin", (unsigned *)&out->degrees) : VERSION_MISMATCH;
}

static const char *const clocks[] = {"graphics_clock", "sm_clock", "mem_clock", "video_clock"};
static const char *const clocks_max[] = {
    "graphics_clock_max", "sm_clock_max", "mem_clock_max", "video_clock_max"};

/* A clock lock shows: there is no other way to read one back. */
int nvmlDeviceGetClockInfo(handle board, unsigned kind, unsigned *out) {
    const char *lock;
    unsigned least, most;
    int code;
    ENTER(board);
    if (kind > 3) return INVALID_ARGUMENT;
    if ((code = number(board, clocks[kind], out))) return code;
    lock = kind == 2 ? of(board, "locked_mem_clocks") : kind < 2 ? of(board, "locked_clocks") : NULL;
    if (!lock || sscanf(lock, "%u %u", &least, &most) != 2) return SUCCESS;
    *out = *out < least ? least : *out > most ? most : *out;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(handle board, unsigned kind, unsigned *out) {
    ENTER(board); return kind < 4 ? number(board, clocks_max[kind], out) : INVALID_ARGUMENT;
}

WIDE(nvmlDeviceGetCurrentClocksEventReasons, "throttle")
WIDE(nvmlDeviceGetCurrentClocksThrottleReasons, "throttle")
WIDE(nvmlDeviceGetSupportedClocksEventReasons, "throttle_supported")
WIDE(nvmlDeviceGetSupportedClocksThrottleReasons, "throttle_supported")

NUMBER(nvmlDeviceGetPowerUsage, "power_mw")
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_default_mw")
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, "power_min_mw", "power_max_mw")
WIDE(nvmlDeviceGetTotalEnergyConsumption, "energy_mj")

/* Others than we may limit too, and more: enforced is then below what was set. */
int nvmlDeviceGetEnforcedPowerLimit(handle board, unsigned *out) {
    ENTER(board);
    return number(board, of(board, "power_enforced_mw") ? "power_enforced_mw" : "power_limit_mw", out);
}

NUMBER(nvmlDeviceGetFanSpeed, "fan")
NUMBER(nvmlDeviceGetNumFans, "fans")

int nvmlDeviceGetFanSpeed_v2(handle board, unsigned which, unsigned *out) {
    char key[24];
    ENTER(board);
    snprintf(key, sizeof key, "fan_%u", which);
    return number(board, which || of(board, key) ? key : "fan", out);
}

struct fan { unsigned version, which, rpm; };

int nvmlDeviceGetFanSpeedRPM(handle board, struct fan *out) {
    ENTER(board);
    return out->version == 0x0100000C ? number(board, "fan_rpm", &out->rpm) : VERSION_MISMATCH;
}

NUMBER(nvmlDeviceGetPerformanceState, "pstate")
NUMBER(nvmlDeviceGetPersistenceMode, "persistence")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetDisplayActive, "display_active")
NUMBER(nvmlDeviceGetDisplayMode, "display_mode")
NUMBER(nvmlDeviceGetAccountingMode, "accounting")

int nvmlDeviceGetDriverModel_v2(handle board, unsigned *current, unsigned *pending) {
    (void)current; (void)pending; ENTER(board); return NOT_SUPPORTED; /* Windows only */
}

int nvmlDeviceGetNumaNodeId(handle board, unsigned *out) { ENTER(board); return number(board, "numa_node", out); }

int nvmlDeviceGetCpuAffinity(handle board, unsigned words, unsigned long *out) {
    u64 mask;
    int code;
    ENTER(board);
    if ((code = wide(board, "cpu_mask", &mask))) return code;
    memset(out, 0, words * sizeof *out);
    if (words) *out = mask;
    return SUCCESS;
}

/* The nodes nearest to it: "near_nodes", a mask. */
int nvmlDeviceGetMemoryAffinity(handle board, unsigned words, unsigned long *out, unsigned scope) {
    u64 mask;
    int code;
    ENTER(board);
    if (scope > 1) return INVALID_ARGUMENT;
    if ((code = wide(board, "near_nodes", &mask))) return code;
    memset(out, 0, words * sizeof *out);
    if (words) *out = mask;
    return SUCCESS;
}

int nvmlDeviceGetTopologyCommonAncestor(handle one, handle two, unsigned *out) {
    char key[48];
    ENTER(one);
    snprintf(key, sizeof key, "ancestor_%s", name_of(two));
    return number(one, key, out);
}
