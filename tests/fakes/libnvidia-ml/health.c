/* ECC, retired pages and rows, PCIe, NVLink and the events that report an Xid. */

#include "fake.h"

static const char *const corrected[] = {"corrected", "uncorrected"};
static const char *const lifetime[] = {"volatile", "aggregate"};

PAIR(nvmlDeviceGetEccMode, "ecc", "ecc_pending")

int nvmlDeviceGetTotalEccErrors(handle board, unsigned kind, unsigned since, u64 *out) {
    char key[64];
    ENTER(board);
    if (kind > 1 || since > 1) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "ecc_%s_%s", corrected[kind], lifetime[since]);
    return wide(board, key, out);
}

int nvmlDeviceGetMemoryErrorCounter(handle board, unsigned kind, unsigned since, unsigned place, u64 *out) {
    char key[64];
    ENTER(board);
    if (kind > 1 || since > 1) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "ecc_%s_%s_%u", corrected[kind], lifetime[since], place);
    return wide(board, key, out);
}

NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending")

/* As many pages as "retired_CAUSE" says, at made-up addresses. */
int nvmlDeviceGetRetiredPages_v2(handle board, unsigned cause, unsigned *count, u64 *pages, u64 *times) {
    char key[32];
    unsigned have, room = *count;
    int code;
    ENTER(board);
    snprintf(key, sizeof key, "retired_%u", cause);
    if ((code = number(board, key, &have))) return code;
    *count = have;
    if (!pages || room < have) return have ? INSUFFICIENT_SIZE : SUCCESS;
    for (unsigned at = 0; at < have; at++) {
        pages[at] = (u64)(at + 1) << 16;
        if (times) times[at] = now_us();
    }
    return SUCCESS;
}

int nvmlDeviceGetRemappedRows(handle board, unsigned *corr, unsigned *unc, unsigned *pending, unsigned *failure) {
    int code;
    ENTER(board);
    code = number(board, "rows_corrected", corr);
    if (!code) code = number(board, "rows_uncorrected", unc);
    if (!code) code = number(board, "rows_pending", pending);
    return code ? code : number(board, "rows_failure", failure);
}

NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie_replays")

/* The driver measures for 20 ms before it answers. */
int nvmlDeviceGetPcieThroughput(handle board, unsigned counter, unsigned *out) {
    ENTER(board);
    if (counter > 1) return INVALID_ARGUMENT;
    unlocked_sleep(20000);
    return number(board, counter ? "pcie_rx_kib_per_s" : "pcie_tx_kib_per_s", out);
}

/* "gpu 0 nvlink_2 1"; beyond the links that it has, not supported */
int nvmlDeviceGetNvLinkState(handle board, unsigned link, unsigned *out) {
    char key[32];
    ENTER(board);
    snprintf(key, sizeof key, "nvlink_%u", link);
    return number(board, key, out);
}

int nvmlDeviceGetNvLinkVersion(handle board, unsigned link, unsigned *out) {
    char key[32];
    ENTER(board);
    snprintf(key, sizeof key, "nvlink_%u_version", link);
    return number(board, key, out);
}

/* "gpu 0 nvlink_2_to switch", or the bus id of the GPU at the other end. */
static const char *other_end(handle board, unsigned link) {
    char key[32];
    snprintf(key, sizeof key, "nvlink_%u_to", link);
    return of(board, key);
}

int nvmlDeviceGetNvLinkRemoteDeviceType(handle board, unsigned link, unsigned *out) {
    const char *other;
    ENTER(board);
    if (!(other = other_end(board, link))) return NOT_SUPPORTED;
    *out = strcmp(other, "switch") ? 0 : 2;
    return SUCCESS;
}

struct remote { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

int nvmlDeviceGetNvLinkRemotePciInfo_v2(handle board, unsigned link, struct remote *out) {
    ENTER(board);
    memset(out, 0, sizeof *out);
    return text(other_end(board, link), out->bus_id, sizeof out->bus_id);
}

int nvmlDeviceGetNvLinkErrorCounter(handle board, unsigned link, unsigned counter, u64 *out) {
    char key[48];
    ENTER(board);
    snprintf(key, sizeof key, "nvlink_%u_errors_%u", link, counter);
    return wide(board, key, out);
}

/* A set knows the boards and kinds it wants, and how far it has read. */
struct events { u64 wanted[GPUS + 1]; unsigned read_to; int is_spoilt, watch; };
struct event { handle board; u64 kind, data; unsigned gi, ci; };
enum { XID = 8, KINDS = 3 | XID };

int nvmlEventSetCreate(struct events **out) {
    ENTER(ALL);
    *out = calloc(1, sizeof **out);
    return SUCCESS;
}

int nvmlEventSetFree(struct events *set) { unwatch(set->watch); free(set); return SUCCESS; }

int nvmlDeviceGetSupportedEventTypes(handle board, u64 *out) {
    ENTER(board);
    *out = of(board, "no_events") ? 0 : KINDS;
    return SUCCESS;
}

static unsigned newest(void) {
    unsigned top = 0, seq;
    const char *rest;
    for (int at = 0; (rest = line(&at, "event"));)
        if (sscanf(rest, "%u", &seq) == 1 && seq > top) top = seq;
    return top;
}

/* What happened before the first registration is not told. */
int nvmlDeviceRegisterEvents(handle board, u64 kinds, struct events *set) {
    __attribute__((cleanup(leave))) int entered_ = enter(board, __func__);
    if (entered_ == UNKNOWN) set->is_spoilt = 1; /* nvml.h: it has to be freed then */
    if (entered_) return entered_;
    if (kinds & ~(u64)KINDS || of(board, "no_events")) return NOT_SUPPORTED;
    if (!set->read_to) set->read_to = newest() + 1;
    set->wanted[parent_of(board)] |= kinds;
    return SUCCESS;
}

/* "event SEQ GPU KIND DATA" */
static int next_event(struct events *set, struct event *out) {
    unsigned seq, best = ~0u;
    int board;
    u64 kind, data;
    const char *rest;
    if (!has_events()) return 0;
    for (int at = 0; (rest = line(&at, "event"));)
        if (sscanf(rest, "%u %d %llu %llu", &seq, &board, &kind, &data) == 4
            && board >= 0 && board < GPUS && seq >= set->read_to && seq < best
            && set->wanted[board + 1] & kind) {
            best = seq;
            *out = (struct event){ board + 1, kind, data, ~0u, ~0u };
        }
    if (best == ~0u) return 0;
    set->read_to = best + 1;
    return 1;
}

int nvmlEventSetWait_v2(struct events *set, struct event *out, unsigned timeout_ms) {
    u64 until;
    ENTER(ALL);
    if (set->is_spoilt) return UNKNOWN;
    until = now_us() + (u64)timeout_ms * 1000;
    while (!next_event(set, out)) {
        u64 now = now_us();
        if (now >= until) return TIMEOUT;
        unlocked_wait(&set->watch, (unsigned)((until - now + 999) / 1000));
    }
    return SUCCESS;
}
