/* What a CUDA program sees: FAKE_CUDA_BOARDS (UUIDs in PCI order, comma between), as
 * CUDA_VISIBLE_DEVICES lets it. As in the real one (CUDA programming guide, environment variables),
 * an entry that names no board hides itself and all that follow; a UUID may be cut short. */

#include <stdlib.h>
#include <string.h>

enum { MOST = 64, TEXT = 64, OK = 0, INVALID = 1, NOT_INITIALIZED = 3 };

static char boards[MOST][TEXT], visible[MOST][TEXT];
static int count = -1;

static int split(const char *text, char found[][TEXT]) {
    int n = 0;
    while (text && *text && n < MOST) {
        size_t length = strcspn(text, ",");
        size_t kept = length < TEXT - 1 ? length : TEXT - 1;
        memcpy(found[n], text, kept);
        found[n++][kept] = 0;
        text += length + (text[length] == ',');
    }
    return n;
}

static int named(const char *word, int n) {
    char *end;
    long index = strtol(word, &end, 10);
    if (*word && !*end) return index >= 0 && index < n ? (int)index : -1;
    for (int board = 0; strlen(word) > 4 && board < n; board++)
        if (!strncmp(boards[board], word, strlen(word))) return board;
    return -1;
}

int cuInit(unsigned flags) {
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    static char words[MOST][TEXT];
    int n = split(getenv("FAKE_CUDA_BOARDS"), boards);
    (void)flags;
    count = 0;
    if (!wanted) {
        memcpy(visible, boards, sizeof boards);
        count = n;
        return OK;
    }
    int asked = split(wanted, words);
    for (int at = 0; at < asked; at++) {
        int board = named(words[at], n);
        if (board < 0) break;
        strcpy(visible[count++], boards[board]);
    }
    return OK;
}

int cuDeviceGetCount(int *found) {
    if (count < 0) return NOT_INITIALIZED;
    *found = count;
    return OK;
}

/* The real one gives 16 bytes; what a test compares is what nvidia-smi prints. */
int fakeDeviceUuid(int device, char *found, unsigned size) {
    if (count < 0) return NOT_INITIALIZED;
    if (device < 0 || device >= count || size < TEXT) return INVALID;
    strcpy(found, visible[device]);
    return OK;
}
