/* The setters. Each call goes into $FAKE_NVML.calls, refused or not; what was accepted goes into
 * $FAKE_NVML.set, which every process reads before the file itself. "ignore 0 CALL" says success
 * and changes nothing, as drivers do. */

#include "fake.h"
#include <fcntl.h>
#include <sys/file.h>

/* Rewrites the .set file without the lines of this beginning, and with the new one if any. */
static void replace(const char *beginning, const char *fresh) {
    char path[4096], next[4104], old[1024];
    size_t length = strlen(beginning);
    FILE *from, *to;
    snprintf(path, sizeof path, "%s.set", getenv("FAKE_NVML"));
    snprintf(next, sizeof next, "%s.next", path);
    if (!(to = fopen(next, "w"))) return;
    if ((from = fopen(path, "r"))) {
        while (fgets(old, sizeof old, from))
            if (strncmp(old, beginning, length) || old[length] != ' ') fputs(old, to);
        fclose(from);
    }
    if (fresh) fprintf(to, "%s %s\n", beginning, fresh);
    fclose(to);
    rename(next, path);
}

void also(handle device, const char *key, const char *fresh) {
    char beginning[SAID];
    snprintf(beginning, sizeof beginning, "gpu %s %s", name_of(device), key);
    replace(beginning, fresh);
}

int done(handle board, const char *call, const char *said, int code, const char *key, const char *fresh) {
    char path[4096], row[SAID + 128];
    int file, length;
    snprintf(path, sizeof path, "%s.calls", getenv("FAKE_NVML"));
    if ((file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600)) < 0) return code;
    flock(file, LOCK_EX);
    length = snprintf(row, sizeof row, "%s %s %d %s\n", call, name_of(board), code, said);
    if (write(file, row, (size_t)length) != length) abort();
    if (!code && key && !is_ignored(board, call)) {
        also(board, key, fresh);
    }
    close(file);
    return code;
}

static int limit(handle board, unsigned mw) {
    unsigned least, most;
    if (!of(board, "power_limit_mw")) return NOT_SUPPORTED;
    if (!number(board, "power_min_mw", &least) && mw < least) return INVALID_ARGUMENT;
    return !number(board, "power_max_mw", &most) && mw > most ? INVALID_ARGUMENT : SUCCESS;
}

int nvmlDeviceSetPowerManagementLimit(handle board, unsigned mw) {
    BEGIN("%u", mw);
    DONE(limit(board, mw), "power_limit_mw", said);
}

struct power { unsigned version, scope, mw; };

int nvmlDeviceSetPowerManagementLimit_v2(handle board, struct power *asked) {
    BEGIN("%u", asked->mw);
    DONE(asked->version == 0x0200000C ? limit(board, asked->mw) : VERSION_MISMATCH, "power_limit_mw", said);
}

static int range(handle board, const char *needs, unsigned least, unsigned most) {
    return !of(board, needs) ? NOT_SUPPORTED : least > most ? INVALID_ARGUMENT : SUCCESS;
}

int nvmlDeviceSetGpuLockedClocks(handle board, unsigned least, unsigned most) {
    BEGIN("%u %u", least, most);
    DONE(range(board, "sm_clock", least, most), "locked_clocks", said);
}

int nvmlDeviceResetGpuLockedClocks(handle board) {
    BEGIN("%s", "");
    DONE(range(board, "sm_clock", 0, 0), "locked_clocks", NULL);
}

int nvmlDeviceSetMemoryLockedClocks(handle board, unsigned least, unsigned most) {
    BEGIN("%u %u", least, most);
    DONE(range(board, "mem_clock", least, most), "locked_mem_clocks", said);
}

int nvmlDeviceResetMemoryLockedClocks(handle board) {
    BEGIN("%s", "");
    DONE(range(board, "mem_clock", 0, 0), "locked_mem_clocks", NULL);
}

static int mode(handle board, const char *key, unsigned value, unsigned most) {
    return !of(board, key) ? NOT_SUPPORTED : value > most ? INVALID_ARGUMENT : SUCCESS;
}

int nvmlDeviceSetPersistenceMode(handle board, unsigned value) {
    BEGIN("%u", value);
    DONE(mode(board, "persistence", value, 1), "persistence", said);
}

int nvmlDeviceSetComputeMode(handle board, unsigned value) {
    BEGIN("%u", value);
    /* 1 was exclusive thread, removed */
    DONE(value == 1 ? INVALID_ARGUMENT : mode(board, "compute_mode", value, 3), "compute_mode", said);
}

int nvmlDeviceSetAccountingMode(handle board, unsigned value) {
    BEGIN("%u", value);
    DONE(mode(board, "accounting", value, 1), "accounting", said);
}

struct limits { const char *cgroup; u64 soft, hard; };
struct limits_now { const char *cgroup; u64 soft, hard, used; };
enum { PATH = 256 };

static int no_limits(handle board, const char *cgroup) {
    if (!of(board, "memory_limits")) return NOT_SUPPORTED;
    return cgroup && *cgroup && strlen(cgroup) < PATH && !strchr(cgroup, ' ') ? SUCCESS : INVALID_ARGUMENT;
}

/* "gpu 0 limit_of_CGROUP SOFT HARD" and "gpu 0 used_by_CGROUP BYTES"; only on boards with "gpu 0 memory_limits 1". */
int nvmlDeviceSetMemoryLimits_v1(handle board, struct limits *asked) {
    char key[300], fresh[80];
    int code;
    BEGIN("%.256s %llu %llu", asked->cgroup ? asked->cgroup : "", asked->soft, asked->hard);
    code = no_limits(board, asked->cgroup);
    if (!code && asked->soft > asked->hard) code = INVALID_ARGUMENT;
    snprintf(key, sizeof key, "limit_of_%.256s", asked->cgroup ? asked->cgroup : "");
    snprintf(fresh, sizeof fresh, "%llu %llu", asked->soft, asked->hard);
    DONE(code, key, asked->soft || asked->hard != ~0ULL ? fresh : NULL);
}

static int limit_of(handle board, const char *cgroup, u64 *soft, u64 *hard) {
    char words[300];
    const char *rest;
    snprintf(words, sizeof words, "gpu %s limit_of_%.256s", name_of(board), cgroup);
    return (rest = find(words)) && sscanf(rest, "%llu %llu", soft, hard) == 2;
}

static u64 used_by(handle board, const char *cgroup) {
    char key[300];
    u64 bytes;
    snprintf(key, sizeof key, "used_by_%.256s", cgroup);
    return wide(board, key, &bytes) ? 0 : bytes;
}

/* A driver without the kernel's controller ("gpu 0 flat_groups 1") answers by the nearest group around that
 * has a limit, and has no count where none has. */
int nvmlDeviceGetMemoryLimits_v1(handle board, struct limits_now *out) {
    char group[PATH], *end;
    int code, is_flat;
    ENTER(board);
    if ((code = no_limits(board, out->cgroup))) return code;
    is_flat = of(board, "flat_groups") != NULL;
    snprintf(group, sizeof group, "%s", out->cgroup);
    while (!limit_of(board, group, &out->soft, &out->hard)) {
        end = strrchr(group, '/');
        if (!is_flat || !end || end == group) return is_flat ? NOT_SUPPORTED : NOT_FOUND;
        *end = 0;
    }
    out->used = used_by(board, out->cgroup);
    return SUCCESS;
}

/* The limit of the group that the caller is in, if it has one, and what that group uses. */
int limit_of_caller(handle board, u64 *hard, u64 *used) {
    char row[PATH], group[PATH + 16] = "";
    u64 soft;
    FILE *groups = of(board, "memory_limits") ? fopen("/proc/self/cgroup", "r") : NULL;
    if (!groups) return 0;
    while (fgets(row, sizeof row, groups))
        if (!strncmp(row, "0::", 3)) {
            row[strcspn(row, "\n")] = 0;
            snprintf(group, sizeof group, "/sys/fs/cgroup%s", strcmp(row + 3, "/") ? row + 3 : "");
        }
    fclose(groups);
    if (!*group || !limit_of(board, group, &soft, hard) || *hard == ~0ULL) return 0;
    *used = used_by(board, group);
    return 1;
}
