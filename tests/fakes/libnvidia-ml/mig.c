/* MIG devices: "gpu 0:1 KEY VALUE" is the second of board 0. They are asked like boards, and
 * what a key is missing for is not supported, utilization rates among it. */

#include "fake.h"

int is_device(handle device) {
    const char *uuid = of(device, "uuid");
    return uuid && *uuid;
}

handle device_with(handle board, unsigned gpu_instance) {
    for (int slot = 1; slot <= SLOTS; slot++) {
        handle device = board + slot * 256;
        unsigned its;
        if (is_device(device) && !number(device, "gi", &its) && its == gpu_instance) return device;
    }
    return 0;
}

PAIR(nvmlDeviceGetMigMode, "mig", "mig_pending")

int nvmlDeviceGetMaxMigDeviceCount(handle board, unsigned *out) {
    ENTER(board);
    *out = of(board, "mig") ? 7 : 0;
    return SUCCESS;
}

/* There are gaps: an instance that was destroyed leaves its place empty. */
int nvmlDeviceGetMigDeviceHandleByIndex(handle board, unsigned index, handle *out) {
    handle device = board + ((handle)index + 1) * 256;
    ENTER(board);
    if (!of(board, "mig")) return NOT_SUPPORTED;
    if (index >= SLOTS) return INVALID_ARGUMENT;
    if (!is_device(device)) return NOT_FOUND;
    *out = device;
    return SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle board, handle *out) {
    ENTER(board);
    *out = parent_of(board);
    return board < 256 ? INVALID_ARGUMENT : SUCCESS;
}

int nvmlDeviceIsMigDeviceHandle(handle board, unsigned *out) {
    ENTER(board);
    *out = board > 255;
    return SUCCESS;
}

NUMBER(nvmlDeviceGetGpuInstanceId, "gi")
NUMBER(nvmlDeviceGetComputeInstanceId, "ci")

struct attributes { unsigned sms, copy, decoders, encoders, jpegs, ofas, gi_slices, ci_slices; u64 memory_mb; };

int nvmlDeviceGetAttributes_v2(handle board, struct attributes *out) {
    u64 bytes = 0;
    ENTER(board);
    if (board < 256) return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    number(board, "sms", &out->sms);
    number(board, "gi_slices", &out->gi_slices);
    number(board, "ci_slices", &out->ci_slices);
    wide(board, "mem_total", &bytes);
    out->memory_mb = bytes >> 20;
    return SUCCESS;
}
