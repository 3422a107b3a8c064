/* The file, its errors and hangs, and the life of the library. */

#include "fake.h"
#include <libgen.h>
#include <poll.h>
#include <pthread.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>

enum { LINES = 4096, WIDTH = 512, COUNTED = 64, PLACES = 16384 };

static char lines[LINES][WIDTH];
static int count_lines, count_events, initialized, count_faults;
static short first_line[PLACES]; /* by hash of "gpu 0 key": its line's number + 1 */
static struct source { const char *suffix; struct stat seen; } sources[] = {{".set", {0}}, {"", {0}}};
static struct { char words[WIDTH]; unsigned calls; } counted[COUNTED];
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static int path_of(const struct source *source, char *path) {
    const char *base = getenv("FAKE_NVML");
    return base && snprintf(path, 4096, "%s%s", base, source->suffix) < 4096;
}

static int has_changed(struct source *source) {
    char path[4096];
    struct stat now = {0};
    if (!path_of(source, path)) return 0;
    if (stat(path, &now)) memset(&now, 0, sizeof now);
    if (now.st_ino == source->seen.st_ino && now.st_size == source->seen.st_size
        && now.st_mtim.tv_sec == source->seen.st_mtim.tv_sec
        && now.st_mtim.tv_nsec == source->seen.st_mtim.tv_nsec) return 0;
    source->seen = now;
    return 1;
}

static void append(const struct source *source) {
    char path[4096];
    FILE *file = path_of(source, path) ? fopen(path, "r") : NULL;
    if (!file) return;
    for (; count_lines < LINES && fgets(lines[count_lines], WIDTH, file); count_lines++)
        lines[count_lines][strcspn(lines[count_lines], "\n")] = 0;
    fclose(file);
}

static int stands(const char *words) {
    for (int at = 0; at < count_lines; at++)
        if (!strcmp(lines[at], words)) return 1;
    return 0;
}

static unsigned hash(const char *words, size_t length) {
    unsigned sum = 2166136261u;
    while (length--) sum = (sum ^ (unsigned char)*words++) * 16777619u;
    return sum % PLACES;
}

static int begins(int at, const char *words, size_t length) {
    return !strncmp(lines[at], words, length) && (lines[at][length] == ' ' || !lines[at][length]);
}

/* Its place, empty or not. There are four times as many places as lines. */
static short *place_of(const char *words, size_t length) {
    unsigned place = hash(words, length);
    while (first_line[place] && !begins(first_line[place] - 1, words, length)) place = (place + 1) % PLACES;
    return &first_line[place];
}

static size_t three_words(const char *line) {
    const char *end = line;
    for (int word = 0; word < 3 && *end; word++) end += (word > 0) + strcspn(end + (word > 0), " ");
    return (size_t)(end - line);
}

/* A bench takes calls of this library for the floor, so they have to be cheap. */
static void make_index(void) {
    memset(first_line, 0, sizeof first_line);
    count_faults = count_events = 0;
    for (int at = 0; at < count_lines; at++) {
        short *place = place_of(lines[at], three_words(lines[at]));
        if (!*place) *place = (short)(at + 1);
        count_events += begins(at, "event", 5);
        count_faults += begins(at, "error", 5) || begins(at, "hang", 4) || begins(at, "lost", 4)
                        || begins(at, "unloaded", 8);
    }
}

/* What the setters left is read first, so that it wins. */
void reload(void) {
    int set = has_changed(&sources[0]), said = has_changed(&sources[1]);
    if (!set && !said) return;
    count_lines = 0;
    append(&sources[0]);
    append(&sources[1]);
    make_index();
    for (int at = 0; at < COUNTED; at++)
        if (!stands(counted[at].words)) memset(&counted[at], 0, sizeof counted[at]);
}

const char *line(int *at, const char *words) {
    size_t length = strlen(words);
    for (; *at < count_lines; ++*at)
        if (begins(*at, words, length)) {
            const char *rest = lines[(*at)++] + length;
            return *rest ? rest + 1 : rest;
        }
    return NULL;
}

const char *find(const char *words) { int at = 0; return line(&at, words); }

const char *name_of(handle board) {
    static __thread char name[32];
    long slot = (board &= OF_DEVICE) / 256 - 1;
    if (slot < 0) snprintf(name, sizeof name, "%ld", board - 1);
    else snprintf(name, sizeof name, "%ld:%ld", board % 256 - 1, slot);
    return name;
}

handle parent_of(handle board) { return board % 256; }

const char *of(handle board, const char *key) {
    char words[320];
    int length = snprintf(words, sizeof words, "gpu %s %s", name_of(board), key);
    short line = *place_of(words, (size_t)length);
    return !line ? NULL : lines[line - 1][length] ? &lines[line - 1][length + 1] : "";
}

int boards(void) {
    int number = 0;
    while (number < GPUS && of(number + 1, "uuid")) number++;
    return number;
}

int has_events(void) { return count_events > 0; }

static unsigned calls_so_far(const char *words) {
    for (int at = 0; at < COUNTED; at++) {
        if (!*counted[at].words) strcpy(counted[at].words, words);
        if (!strcmp(counted[at].words, words)) return counted[at].calls++;
    }
    return 0;
}

/* "error 0 CALL CODE [after N] [times N]" */
static int verdict(const char *board, const char *call) {
    char words[256], all[WIDTH];
    unsigned after = 0, times = ~0u, calls;
    const char *rest, *option;
    snprintf(words, sizeof words, "error %s %s", board, call);
    if (!(rest = find(words))) return SUCCESS;
    if ((option = strstr(rest, "after "))) after = (unsigned)atoi(option + 6);
    if ((option = strstr(rest, "times "))) times = (unsigned)atoi(option + 6);
    snprintf(all, sizeof all, "%.250s %.250s", words, rest);
    calls = after || times != ~0u ? calls_so_far(all) : 0;
    return calls >= after && calls - after < times ? atoi(rest) : SUCCESS;
}

static int has(const char *word, const char *board, const char *call) {
    char words[256];
    snprintf(words, sizeof words, "%s %s %s", word, board, call);
    return find(words) != NULL;
}

int is_ignored(handle board, const char *call) {
    return has("ignore", "*", call) || has("ignore", name_of(board), call);
}

/* "hang CALL" for all boards, "hang 0 CALL" for one. */
static int hangs(handle board, const char *call) {
    char words[160];
    snprintf(words, sizeof words, "hang %s", call);
    return find(words) || (board > 0 && has("hang", name_of(board), call));
}

static int is_lost(handle board) {
    char words[32];
    snprintf(words, sizeof words, "lost %ld", parent_of(board) - 1);
    return find(words) != NULL;
}

void unlocked_sleep(unsigned us) {
    pthread_mutex_unlock(&lock);
    usleep(us);
    pthread_mutex_lock(&lock);
    reload();
}

/* Of the folder, as a file comes by a rename. */
static int watched(void) {
    char path[4096];
    int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watch >= 0 && path_of(&sources[1], path)
        && inotify_add_watch(watch, dirname(path), IN_MOVED_TO | IN_CLOSE_WRITE) >= 0) return watch;
    if (watch >= 0) close(watch);
    return -1;
}

/* A driver wakes nobody who waits for an event until there is one, and a bench counts what that
 * takes. Where files cannot be watched they are looked at. */
void unlocked_wait(int *watch, unsigned ms) {
    char changes[4096];
    struct pollfd waits;
    if (!*watch) {
        *watch = watched();
        reload(); /* what came before the watch */
        return;
    }
    waits = (struct pollfd){ *watch, POLLIN, 0 };
    pthread_mutex_unlock(&lock);
    poll(&waits, 1, *watch < 0 && ms > 25 ? 25 : (int)ms);
    while (*watch >= 0 && read(*watch, changes, sizeof changes) > 0) {}
    pthread_mutex_lock(&lock);
    reload();
}

void unwatch(int watch) { if (watch > 0) close(watch); }

/* Calls by name, of this process: a name is one text, so its address will do. */
enum { CALLS = 1024 };
static struct { const char *name; u64 number; } calls[CALLS];

static void count_call(const char *name) {
    unsigned at = (unsigned)((u64)name >> 3) % CALLS;
    while (calls[at].name && calls[at].name != name) at = (at + 1) % CALLS;
    calls[at].name = name;
    calls[at].number++;
}

/* How often this was called so far, or all together. */
u64 fake_calls(const char *name) {
    u64 sum = 0;
    pthread_mutex_lock(&lock);
    for (int at = 0; at < CALLS; at++)
        if (calls[at].name && (!name || !strcmp(calls[at].name, name))) sum += calls[at].number;
    pthread_mutex_unlock(&lock);
    return sum;
}

int enter(handle board, const char *call) {
    int code;
    pthread_mutex_lock(&lock);
    count_call(call);
    reload();
    while (count_faults && hangs(board, call)) unlocked_sleep(20000);
    if (board != ALL && !initialized) code = UNINITIALIZED;
    else if (board != ALL && (board < 1 || parent_of(board) < 1 || parent_of(board) > GPUS)) code = INVALID_ARGUMENT;
    else if (!count_faults) code = SUCCESS;
    else if (find("unloaded")) code = board == ALL ? DRIVER_NOT_LOADED : UNINITIALIZED;
    else if ((code = verdict("*", call)) || board == ALL) ;
    else if (is_lost(board)) code = GPU_IS_LOST;
    else code = verdict(name_of(board), call);
    if (code) pthread_mutex_unlock(&lock);
    return code;
}

void leave(int *code) { if (!*code) pthread_mutex_unlock(&lock); }

int text(const char *value, char *out, unsigned size) {
    if (!value) return NOT_SUPPORTED;
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}

int number(handle board, const char *key, unsigned *out) {
    const char *value = of(board, key);
    if (!value) return NOT_SUPPORTED;
    *out = *value == '-' ? (unsigned)strtol(value, NULL, 10) : (unsigned)strtoul(value, NULL, 10);
    return SUCCESS;
}

int wide(handle board, const char *key, u64 *out) {
    const char *value = of(board, key);
    if (!value) return NOT_SUPPORTED;
    *out = strtoull(value, NULL, 10);
    return SUCCESS;
}

u64 now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (u64)now.tv_sec * 1000000 + (u64)now.tv_nsec / 1000;
}

const char *nvmlErrorString(int code) {
    static __thread char words[32];
    snprintf(words, sizeof words, "fake error %d", code);
    return words;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; ENTER(ALL); initialized++; return SUCCESS; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    if (!initialized) return UNINITIALIZED;
    ENTER(ALL);
    initialized--;
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) { ENTER(ALL); return text(find("driver"), out, size); }
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { ENTER(ALL); return text(find("nvml"), out, size); }

int nvmlSystemGetCudaDriverVersion(int *out) {
    const char *value;
    ENTER(ALL);
    if (!(value = find("cuda"))) return NOT_SUPPORTED;
    *out = atoi(value);
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *out) { return nvmlSystemGetCudaDriverVersion(out); }
