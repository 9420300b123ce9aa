/* A session of the caching client with the server whose URI is the argument, from several threads
 * at a time; the volume must have 64 blocks of 4096 bytes. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "undercroft.h"

#define BLOCK 4096
#define BLOCKS 64
#define THREADS 4

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, uc_last_error()); \
            exit(1); \
        } \
    } while (0)

struct part {
    const uc_client *client;
    unsigned number;
};

static void *work(void *argument)
{
    struct part *part = argument;
    unsigned char data[BLOCK], back[BLOCK];
    for (unsigned round = 0; round < 200; round++) {
        uint64_t block = part->number + THREADS * (round * 7 % (BLOCKS / THREADS));
        memset(data, (int)(round + part->number), sizeof data);
        CHECK(uc_client_write(part->client, block * BLOCK, data, sizeof data, 0) == UC_OK);
        CHECK(uc_client_read(part->client, block * BLOCK, back, sizeof back) == UC_OK);
        CHECK(memcmp(data, back, sizeof data) == 0);
    }
    return NULL;
}

static void errors(const char *uri)
{
    uc_client_options options;
    uc_client *client = (uc_client *)&options;
    CHECK(uc_client_options_init(&options) == UC_OK);
    CHECK(uc_client_open(NULL, &options, &client) == UC_ERROR_ARGUMENT && client == NULL);
    CHECK(uc_client_open("http://x", &options, &client) == UC_ERROR_ARGUMENT);
    CHECK(uc_client_open(uri, NULL, &client) == UC_ERROR_ARGUMENT);
    CHECK(uc_client_open(uri, &options, NULL) == UC_ERROR_ARGUMENT);
    CHECK(uc_client_open("nbd+unix:///v?socket=/none/at/all", &options, &client) == UC_ERROR_LOST);
    CHECK(strstr(uc_last_error(), "cannot connect") != NULL);
    options.policy = "nonsense";
    CHECK(uc_client_open(uri, &options, &client) == UC_ERROR_ARGUMENT);
    CHECK(strstr(uc_last_error(), "nonsense") != NULL);
    CHECK(uc_client_options_init(&options) == UC_OK);
    options.batch = 65;
    CHECK(uc_client_open(uri, &options, &client) == UC_ERROR_ARGUMENT);
    CHECK(uc_client_options_init(&options) == UC_OK);
    options.struct_bytes = 8;
    CHECK(uc_client_open(uri, &options, &client) == UC_ERROR_ARGUMENT);
    CHECK(uc_client_size(NULL) == 0 && uc_client_block_bytes(NULL) == 0);
    CHECK(uc_client_flush(NULL) == UC_ERROR_ARGUMENT);
    uc_client_close(NULL);
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    errors(arguments[1]);
    uc_client_options options;
    uc_client *client;
    CHECK(uc_client_options_init(&options) == UC_OK);
    options.blocks = 10;
    options.policy = "mq";
    options.report = UC_REPORT_DEMOTIONS;
    options.batch = 1;
    CHECK(uc_client_open(arguments[1], &options, &client) == UC_OK);
    CHECK(uc_client_size(client) == BLOCKS * BLOCK && uc_client_block_bytes(client) == BLOCK);

    pthread_t threads[THREADS];
    struct part parts[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        parts[i] = (struct part){client, i};
        CHECK(pthread_create(&threads[i], NULL, work, &parts[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);

    char text[11] = "";
    CHECK(uc_client_write(client, 4090, "0123456789", 10, 1) == UC_OK);
    CHECK(uc_client_read(client, 4090, text, 10) == UC_OK);
    CHECK(strcmp(text, "0123456789") == 0);
    CHECK(uc_client_write_zeroes(client, 4095, 2, 0) == UC_OK);
    CHECK(uc_client_read(client, 4090, text, 10) == UC_OK);
    CHECK(memcmp(text, "01234\0\0" "789", 10) == 0);
    CHECK(uc_client_trim(client, 0, BLOCK) == UC_OK);
    CHECK(uc_client_flush(client) == UC_OK);
    CHECK(uc_client_read(client, 0, NULL, 0) == UC_OK);
    CHECK(uc_client_read(client, 0, NULL, 1) == UC_ERROR_ARGUMENT);
    CHECK(uc_client_read(client, 0, text, SIZE_MAX) == UC_ERROR_ARGUMENT);
    CHECK(uc_client_read(client, BLOCKS * BLOCK, text, 1) == UC_ERROR_ARGUMENT);
    CHECK(strstr(uc_last_error(), "pass the end of 262144 bytes") != NULL);

    uc_client_stats stats;
    CHECK(uc_client_stats_get(client, &stats, 8) == UC_ERROR_ARGUMENT);
    CHECK(uc_client_stats_get(client, &stats, sizeof stats) == UC_OK);
    CHECK(stats.writes >= THREADS * 200 && stats.reads >= THREADS * 200 && stats.read_hits > 0);
    CHECK(stats.capacity_blocks == 10 && stats.evictions > 0 && stats.messages > 0);
    CHECK(stats.demotions > 0 && stats.messages_refused == 0);
    uc_client_close(client);
    return 0;
}
