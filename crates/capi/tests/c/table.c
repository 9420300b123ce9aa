/* The worked example cct-1 of the client content table, and its errors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "undercroft.h"

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, uc_last_error()); \
            exit(1); \
        } \
    } while (0)

struct list {
    uint64_t blocks[16];
    size_t count;
    uc_cct *table;
};

static void note(void *context, uint64_t block)
{
    struct list *list = context;
    list->blocks[list->count++] = block;
    /* A callback may use the table. */
    CHECK(uc_cct_forget(list->table, 99) == UC_OK);
}

static int is(struct list *list, size_t count, const uint64_t *blocks)
{
    int same = list->count == count && memcmp(list->blocks, blocks, count * sizeof *blocks) == 0;
    list->count = 0;
    return same;
}

int main(void)
{
    struct list gone = {{0}, 0, NULL};
    uc_cct *table = uc_cct_new(4096, UC_FRAMES_ANY, 1000, 7);
    CHECK(table != NULL);
    gone.table = table;
    CHECK(uc_cct_read(table, 1, 0x0000, 10, 1, note, &gone) == UC_OK);
    CHECK(uc_cct_read(table, 1, 0x1000, 11, 1, note, &gone) == UC_OK);
    CHECK(uc_cct_read(table, 1, 0x2000, 10, 1, note, &gone) == UC_OK);
    CHECK(uc_cct_read(table, 1, 0x0000, 12, 1, note, &gone) == UC_OK);
    CHECK(is(&gone, 0, NULL));
    CHECK(uc_cct_write(table, 1, 0x1000, 13, 1, note, &gone) == UC_OK);
    CHECK(is(&gone, 1, (const uint64_t[]){11}));
    CHECK(uc_cct_read(table, 1, 0x2000, 20, 2, note, &gone) == UC_OK);
    CHECK(is(&gone, 1, (const uint64_t[]){10}));
    CHECK(uc_cct_read(table, 1, 0x0000, 12, 1, note, &gone) == UC_OK);
    CHECK(is(&gone, 0, NULL));
    CHECK(uc_cct_unmap(table, 1, 0x2000, 0x2000, note, &gone) == UC_OK);
    CHECK(is(&gone, 2, (const uint64_t[]){20, 21}));
    /* What is forgotten is not told; nobody has to listen. */
    CHECK(uc_cct_forget(table, 1) == UC_OK);
    CHECK(uc_cct_unmap(table, 1, 0, UINT64_MAX, note, &gone) == UC_OK);
    CHECK(is(&gone, 0, NULL));
    CHECK(uc_cct_read(table, 1, 0, 1, 1, NULL, NULL) == UC_OK);
    CHECK(uc_cct_read(table, 1, 0, 2, 1, NULL, NULL) == UC_OK);

    CHECK(uc_cct_read(table, 1, 0, UINT64_MAX, 2, note, &gone) == UC_ERROR_ARGUMENT);
    CHECK(strstr(uc_last_error(), "count: up to 1048576 blocks") != NULL);
    CHECK(uc_cct_read(table, 1, 0, 0, UINT32_MAX, note, &gone) == UC_ERROR_ARGUMENT);
    CHECK(uc_cct_unmap(table, 1, 1, UINT64_MAX, note, &gone) == UC_ERROR_ARGUMENT);
    CHECK(uc_cct_read(NULL, 1, 0, 1, 1, note, &gone) == UC_ERROR_ARGUMENT);
    CHECK(strcmp(uc_last_error(), "the table is NULL") == 0);
    CHECK(uc_cct_new(0, UC_FRAMES_ANY, 1, 0) == NULL);
    CHECK(uc_cct_new(4096, 2, 1, 0) == NULL);
    CHECK(strstr(uc_last_error(), "UC_FRAMES_READ") != NULL);
    CHECK(is(&gone, 0, NULL));
    uc_cct_free(table);
    uc_cct_free(NULL);
    return 0;
}
