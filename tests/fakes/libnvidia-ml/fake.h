/* A libnvidia-ml.so.1 that says what a text file says; the file's lines are in ../README.md.
 * Layouts are nvml.h's, sizes checked against pynvml's by the tests. Not exported but
 * in the library built WIDE_PROCESSES: nvmlDeviceGetConfComputeMemSizeInfo. By it nvitop tells the drivers
 * whose process struct had 32 bytes for a while. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4,
       NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15,
       RESET_REQUIRED = 16, IN_USE = 19, INSUFFICIENT_RESOURCES = 23, VERSION_MISMATCH = 25, UNKNOWN = 999 };
enum { GPUS = 16, SLOTS = 8, ALL = -1, SAID = 400 };

typedef unsigned long long u64;
/* Board number + 1; of a MIG device that, and (slot + 1) * 256; of its GPU instance and of its compute
 * instance that, and one of these. */
typedef long handle;
enum { GPU_INSTANCE = 0x10000, COMPUTE_INSTANCE = 0x20000, OF_DEVICE = 0xFFFF };

#pragma GCC visibility push(hidden)

/* Every call begins with ENTER: the file is read again if it changed, hangs and errors that it
 * asks for happen, and the lock is held until the function returns. */
int enter(handle board, const char *call);
void leave(int *code);
#define ENTER(board) \
    __attribute__((cleanup(leave))) int entered_ = enter(board, __func__); \
    if (entered_) return entered_

void reload(void);
void unlocked_sleep(unsigned us);
void unlocked_wait(int *watch, unsigned ms); /* or until a file changes; *watch is 0 at first */
void unwatch(int watch);
int is_ignored(handle board, const char *call);
u64 now_us(void);

const char *name_of(handle board); /* "0"; of a MIG device "0:1" */
handle parent_of(handle board);
int boards(void);
int has_events(void);

/* The rest of the first line from *at on that begins with these words. */
const char *line(int *at, const char *words);
const char *find(const char *words);
const char *of(handle board, const char *key);
int text(const char *value, char *out, unsigned size);
int number(handle board, const char *key, unsigned *out);
int wide(handle board, const char *key, u64 *out);

/* Records the call; of one that was accepted, the new value of this key if any. */
int done(handle board, const char *call, const char *said, int code, const char *key, const char *fresh);
/* Also what belongs to it. */
void also(handle device, const char *key, const char *fresh);

u64 mem_used(handle board, u64 base);
int limit_of_caller(handle board, u64 *hard, u64 *used); /* 1: its control group has a memory limit */
int is_device(handle device); /* not an empty place */
int is_used(handle device); /* by a process */
handle device_with(handle board, unsigned gpu_instance); /* the first one, or 0 */

#pragma GCC visibility pop

union value { double d; unsigned ui; unsigned long ul; u64 ull; long long sll; int si; };

#define BEGIN(...) \
    char said[SAID]; \
    snprintf(said, sizeof said, __VA_ARGS__); \
    __attribute__((cleanup(leave))) int entered_ = enter(board, __func__); \
    if (entered_) return done(board, __func__, said, entered_, NULL, NULL)
#define DONE(code, key, fresh) return done(board, __func__, said, code, key, fresh)

#define NUMBER(call, key) int call(handle board, unsigned *out) { ENTER(board); return number(board, key, out); }
#define WIDE(call, key) int call(handle board, u64 *out) { ENTER(board); return wide(board, key, out); }
#define TEXT(call, key) int call(handle board, char *out, unsigned size) { ENTER(board); return text(of(board, key), out, size); }
#define PAIR(call, first, second) \
    int call(handle board, unsigned *one, unsigned *two) { \
        ENTER(board); \
        int code = number(board, first, one); \
        return code ? code : number(board, second, two); \
    }
