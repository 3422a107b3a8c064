/* GPU instances and compute instances: what a board can be split into, created and destroyed.
 *
 * "gpu 0 profile_9 ID SLICES MEMORY_MB MOST SIZE NAME START ..." is the profile of that number; there
 * are gaps. "gpu 0:1 gi_profile ID", "gi_start N": the GPU instance in the second place; with "uuid" it
 * has a compute instance too, and is a MIG device. What a driver refuses, this refuses. */

#include "fake.h"
#include <sys/random.h>

enum { NUMBERS = 10, STARTS = 8, PARTS = 8 };
static const unsigned slices_of_part[PARTS] = { 1, 2, 3, 4, 7, 8, 6, 1 };

struct profile { unsigned id, slices, memory_mb, most, size, starts[STARTS], count; char name[32]; };
struct place { unsigned start, size; };

static int is_on(handle board) {
    unsigned on = 0;
    return !number(parent_of(board), "mig", &on) && on;
}

static int read_profile(handle board, unsigned at, struct profile *out) {
    char key[32];
    const char *row;
    int used = 0, more;
    snprintf(key, sizeof key, "profile_%u", at);
    memset(out, 0, sizeof *out);
    if (!(row = of(parent_of(board), key))) return 0;
    if (sscanf(row, "%u %u %u %u %u %31s%n", &out->id, &out->slices, &out->memory_mb, &out->most, &out->size, out->name, &used) != 6) abort();
    for (row += used; out->count < STARTS && sscanf(row, "%u%n", &out->starts[out->count], &more) == 1; row += more) out->count++;
    return 1;
}

static int profile_of(handle board, unsigned id, struct profile *out) {
    for (unsigned at = 0; at < NUMBERS; at++)
        if (read_profile(board, at, out) && out->id == id) return 1;
    return 0;
}

struct info { unsigned id, is_p2p, slices, most, sms, copy, decoders, encoders, jpegs, ofas; u64 memory_mb; };
struct info_v2 { unsigned version, id, is_p2p, slices, most, sms, copy, decoders, encoders, jpegs, ofas; u64 memory_mb; char name[96]; };

static int number_trouble(handle board, unsigned at, struct profile *found) {
    return at >= NUMBERS ? INVALID_ARGUMENT : read_profile(board, at, found) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetGpuInstanceProfileInfo(handle board, unsigned at, struct info *out) {
    struct profile found;
    int code;
    ENTER(board);
    if ((code = number_trouble(board, at, &found))) return code;
    *out = (struct info){ found.id, 0, found.slices, found.most, 16 * found.slices, 1, 0, 0, 0, 0, found.memory_mb };
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceProfileInfoV(handle board, unsigned at, struct info_v2 *out) {
    struct profile found;
    int code;
    ENTER(board);
    if (out->version != 0x02000098) return VERSION_MISMATCH;
    if (!is_on(board)) return NOT_SUPPORTED;
    if ((code = number_trouble(board, at, &found))) return code;
    *out = (struct info_v2){ out->version, found.id, 0, found.slices, found.most, 16 * found.slices, 1, 0, 0, 0, 0, found.memory_mb, "" };
    snprintf(out->name, sizeof out->name, "MIG %s", found.name);
    return SUCCESS;
}

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(handle board, unsigned id, struct place *out, unsigned *count) {
    struct profile found;
    ENTER(board);
    if (!profile_of(board, id, &found)) return INVALID_ARGUMENT;
    for (unsigned at = 0; out && at < found.count; at++) out[at] = (struct place){ found.starts[at], found.size };
    *count = found.count;
    return SUCCESS;
}

static int is_instance(handle device) {
    const char *profile = of(device & OF_DEVICE, "gi_profile");
    return profile && *profile;
}

static handle instance_at(handle board, int slot) { return parent_of(board) + slot * 256; }

int nvmlDeviceGetGpuInstances(handle board, unsigned id, handle *out, unsigned *count) {
    unsigned its;
    ENTER(board);
    if (!is_on(board)) return NOT_SUPPORTED;
    *count = 0;
    for (int slot = 1; slot <= SLOTS; slot++) {
        handle each = instance_at(board, slot);
        if (is_instance(each) && !number(each, "gi_profile", &its) && its == id) out[(*count)++] = each | GPU_INSTANCE;
    }
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceById(handle board, unsigned id, handle *out) {
    unsigned its;
    ENTER(board);
    for (int slot = 1; slot <= SLOTS; slot++) {
        handle each = instance_at(board, slot);
        if (is_instance(each) && !number(each, "gi", &its) && its == id) { *out = each | GPU_INSTANCE; return SUCCESS; }
    }
    return NOT_FOUND;
}

struct instance_info { handle board; unsigned id, profile; struct place place; };

static void place_of(handle instance, struct place *out) {
    struct profile found;
    unsigned id = 0;
    number(instance & OF_DEVICE, "gi_profile", &id);
    number(instance & OF_DEVICE, "gi_start", &out->start);
    out->size = profile_of(instance, id, &found) ? found.size : 0;
}

int nvmlGpuInstanceGetInfo(handle instance, struct instance_info *out) {
    handle board = instance;
    ENTER(board);
    if (!is_instance(instance)) return INVALID_ARGUMENT;
    out->board = parent_of(instance);
    number(instance & OF_DEVICE, "gi", &out->id);
    number(instance & OF_DEVICE, "gi_profile", &out->profile);
    place_of(instance, &out->place);
    return SUCCESS;
}

/* As a driver numbers them: media and double memory after the others. */
static int has_room(handle board, const struct profile *wanted, unsigned start) {
    unsigned taken = 0, same = 0, its;
    for (int slot = 1; slot <= SLOTS; slot++) {
        struct place place = {0, 0};
        if (!is_instance(instance_at(board, slot))) continue;
        place_of(instance_at(board, slot), &place);
        taken |= ((1u << place.size) - 1) << place.start;
        number(instance_at(board, slot), "gi_profile", &its);
        same += its == wanted->id;
    }
    return !(taken & ((1u << wanted->size) - 1) << start) && same < wanted->most;
}

static int creation(handle board, unsigned id, const struct place *where, struct profile *found) {
    if (!is_on(board)) return NOT_SUPPORTED;
    if (!profile_of(board, id, found)) return INVALID_ARGUMENT;
    for (unsigned at = 0; at < found->count; at++)
        if (found->starts[at] == where->start && where->size == found->size) return has_room(board, found, where->start) ? SUCCESS : INSUFFICIENT_RESOURCES;
    return INVALID_ARGUMENT;
}

static void put(handle device, const char *key, unsigned value) {
    char words[16];
    snprintf(words, sizeof words, "%u", value);
    also(device, key, words);
}

static handle free_place(handle board) {
    for (int slot = 1; slot <= SLOTS; slot++)
        if (!is_instance(instance_at(board, slot)) && !is_device(instance_at(board, slot))) return instance_at(board, slot);
    abort();
}

int nvmlDeviceCreateGpuInstanceWithPlacement(handle board, unsigned id, const struct place *where, handle *out) {
    struct profile found = {0};
    int code;
    BEGIN("%u %u", id, where->start);
    code = creation(board, id, where, &found);
    if (!code && !is_ignored(board, __func__)) {
        handle made = free_place(board);
        put(made, "gi_start", where->start);
        put(made, "gi", found.size == 1 ? 7 + where->start : found.size == 2 ? 3 + where->start / 2 : 1 + where->start / 4);
        put(made, "gi_slices", found.slices);
        put(made, "gi_profile", id);
        *out = made | GPU_INSTANCE;
    }
    DONE(code, NULL, NULL);
}

/* A refusal is a value, not an error, and the mode stays pending. "mig_held": some program has the
 * board open; "mig_needs_reset": nothing but a reset changes it, and that comes at no time here. */
int nvmlDeviceSetMigMode(handle board, unsigned mode, unsigned *status) {
    unsigned now = 0, held = 0, reset = 0;
    int code;
    BEGIN("%u", mode);
    code = mode > 1 ? INVALID_ARGUMENT : number(board, "mig", &now);
    if (!code && !is_ignored(board, __func__)) {
        number(board, "mig_held", &held);
        number(board, "mig_needs_reset", &reset);
        for (int slot = 1; slot <= SLOTS; slot++) held |= is_instance(instance_at(board, slot)) || is_used(instance_at(board, slot));
        *status = mode == now ? SUCCESS : reset ? RESET_REQUIRED : held || is_used(board) ? IN_USE : SUCCESS;
        put(board, "mig_pending", mode);
        if (*status == SUCCESS) put(board, "mig", mode);
    } else if (!code) *status = SUCCESS;
    DONE(code, NULL, NULL);
}

struct part { unsigned id, slices, most, sms, shared[5]; };

int nvmlGpuInstanceGetComputeInstanceProfileInfo(handle instance, unsigned at, unsigned engine, struct part *out) {
    handle board = instance;
    unsigned slices = 0;
    ENTER(board);
    number(instance & OF_DEVICE, "gi_slices", &slices);
    if (at >= PARTS + 1 || engine) return INVALID_ARGUMENT;
    if (at >= PARTS || slices_of_part[at] > slices || at == 7) return NOT_SUPPORTED;
    *out = (struct part){ at, slices_of_part[at], slices / slices_of_part[at], 16 * slices_of_part[at], {0} };
    return SUCCESS;
}

static unsigned part_of(handle instance) {
    unsigned slices = 0, at = 0;
    number(instance & OF_DEVICE, "ci_slices", &slices);
    while (at < PARTS && slices_of_part[at] != slices) at++;
    return at;
}

int nvmlGpuInstanceGetComputeInstances(handle instance, unsigned id, handle *out, unsigned *count) {
    handle board = instance, device = instance & OF_DEVICE;
    ENTER(board);
    *count = is_device(device) && part_of(device) == id;
    if (*count) *out = device | COMPUTE_INSTANCE;
    return SUCCESS;
}

int nvmlGpuInstanceCreateComputeInstance(handle instance, unsigned id, handle *out) {
    handle board = instance, device = instance & OF_DEVICE;
    unsigned char dice[8];
    struct profile its = {0};
    unsigned profile = 0;
    char uuid[64], bytes[32], name[96];
    int code;
    BEGIN("%u", id);
    code = !is_instance(device) || id >= PARTS ? INVALID_ARGUMENT : is_device(device) ? INSUFFICIENT_RESOURCES : SUCCESS;
    if (!code) {
        number(device, "gi_profile", &profile);
        profile_of(device, profile, &its);
        snprintf(bytes, sizeof bytes, "%llu", (u64)its.memory_mb << 20);
        if (getrandom(dice, sizeof dice, 0) != sizeof dice) abort();
        snprintf(uuid, sizeof uuid, "MIG-%02x%02x%02x%02x-%02x%02x-4000-8000-%02x%02x00000000", dice[0], dice[1], dice[2], dice[3], dice[4], dice[5], dice[6], dice[7]);
        snprintf(name, sizeof name, "%.40s MIG %s", of(parent_of(device), "name"), its.name);
        also(device, "name", name);
        put(device, "ci", 0);
        put(device, "ci_slices", slices_of_part[id]);
        put(device, "sms", 16 * slices_of_part[id]);
        also(device, "mem_total", bytes);
        also(device, "mem_used", "0");
        also(device, "uuid", uuid);
        *out = device | COMPUTE_INSTANCE;
    }
    DONE(code, NULL, NULL);
}

int nvmlComputeInstanceDestroy(handle part) {
    handle board = part, device = part & OF_DEVICE;
    int code;
    BEGIN("%s", "");
    code = !is_device(device) ? INVALID_ARGUMENT : is_used(device) ? IN_USE : SUCCESS;
    if (!code && !is_ignored(board, __func__)) also(device, "uuid", "");
    DONE(code, NULL, NULL);
}

int nvmlGpuInstanceDestroy(handle instance) {
    handle board = instance, device = instance & OF_DEVICE;
    int code;
    BEGIN("%s", "");
    code = !is_instance(device) ? INVALID_ARGUMENT : is_device(device) ? IN_USE : SUCCESS;
    if (!code && !is_ignored(board, __func__)) also(device, "gi_profile", "");
    DONE(code, NULL, NULL);
}
