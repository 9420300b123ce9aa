/*
 * undercroft.h: the client side of Undercroft for programs in C.
 *
 * Two things, independent of each other: a client content table (uc_cct_*), which finds out what a
 * program's cache has evicted from the addresses of its buffers; and a caching NBD client
 * (uc_client_*), which tells the server what leaves its cache.
 *
 * Functions that can fail return UC_OK or a negative UC_ERROR_*; uc_last_error() has the text.
 * Handles and pointers must be valid, texts UTF-8 with a zero byte at the end; NULL is an error
 * unless said otherwise. After fork() a child must not use handles of its parent.
 */
#ifndef UNDERCROFT_H
#define UNDERCROFT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UC_OK 0
#define UC_ERROR_ARGUMENT (-1) /* an argument is not allowed; nothing happened */
#define UC_ERROR_SERVER (-2)   /* the server answered with an error, or does not offer that */
#define UC_ERROR_REFUSED (-3)  /* the server has no such export, or takes no such hints */
#define UC_ERROR_LOST (-4)     /* the connection is lost, or was never there */
#define UC_ERROR_INTERNAL (-5) /* a mistake in the library */
#define UC_ERROR_UNFLUSHED (-6) /* of a flush: writes had been answered and not flushed when the
                                 * connection was lost, or when the server could not make a write
                                 * durable. They may be lost */

/* The text of the last error on this thread, for people; "" if there was none. It stays until the
 * next error on the same thread. */
const char *uc_last_error(void);

/* --- Client content table ---------------------------------------------------------------------
 *
 * Tell it of each read and write that the program sends to storage, with the address of the
 * buffer; it tells which blocks the program holds no more. Blocks are any numbers below 2^64 - 1
 * that the program gives them, over all of its disks. A table must not be used by two threads at a
 * time.
 */
typedef struct UcCct uc_cct;

/* Which addresses are frames of the cache: those into which one block has been read; or all. */
#define UC_FRAMES_READ 0
#define UC_FRAMES_ANY 1

/* Called for each evicted block, in order, before the call that found it out returns. May use the
 * table; must not leave by longjmp or an exception. */
typedef void (*uc_evicted)(void *context, uint64_t block);

/* A table for blocks of block_bytes (at least 1) with room for max_slots (at least 1) buffers, each
 * of about 60 bytes. seed makes the index unpredictable. NULL on error. */
uc_cct *uc_cct_new(uint32_t block_bytes, int frames, uint32_t max_slots, uint64_t seed);

/* The program `client` (a number; another one for each address space) reads `count` blocks (up to
 * 2^20), from first_block on, into its memory at `address`; or writes them from there. `evicted`
 * may be NULL, if nobody wants to know. */
int uc_cct_read(uc_cct *cct, uint32_t client, uint64_t address, uint64_t first_block,
                uint32_t count, uc_evicted evicted, void *context);
int uc_cct_write(uc_cct *cct, uint32_t client, uint64_t address, uint64_t first_block,
                 uint32_t count, uc_evicted evicted, void *context);

/* `length` bytes of the program's memory are gone, or are used for something else. */
int uc_cct_unmap(uc_cct *cct, uint32_t client, uint64_t address, uint64_t length,
                 uc_evicted evicted, void *context);

/* The program is gone or has begun anew: nothing is told of what it held. */
int uc_cct_forget(uc_cct *cct, uint32_t client);

/* Frees the table; NULL is allowed. */
void uc_cct_free(uc_cct *cct);

/* --- Caching client ----------------------------------------------------------------------------
 *
 * Calls wait until they are done. Any number of threads may use a client at the same time, but for
 * uc_client_close. Operations on common blocks take effect one after another. Writes go to the
 * server before they are answered. While the client is open nobody else may change the volume:
 * the cache would not notice. When the connection is lost, calls under way fail; the next one
 * connects again, with an empty cache, and fails if that is not possible. Of writes that had been
 * answered and not flushed the next flush says that they may be lost.
 */
typedef struct UcClient uc_client;

#define UC_WRITE_ALLOCATE 0    /* a written block comes to the cache */
#define UC_WRITE_NO_ALLOCATE 1 /* a write updates what is in the cache, and brings nothing there */
#define UC_WRITE_INVALIDATE 2  /* a written block leaves the cache */

#define UC_REPORT_NOTHING 0   /* any NBD server will do */
#define UC_REPORT_EVICTIONS 1 /* the server is told which blocks leave the cache */
#define UC_REPORT_DEMOTIONS 2 /* the server is also given their data */

/* Set by uc_client_options_init; change what you like afterwards. */
typedef struct uc_client_options {
    uint32_t struct_bytes;       /* leave it as it is */
    uint32_t blocks;             /* in the cache: 1 to 2^31 - 1; 8192. Their size is the server's */
    const char *policy;          /* "lru"; any of `undercroft policies`, with parameters */
    uint32_t write_mode;         /* UC_WRITE_ALLOCATE */
    uint32_t report;             /* UC_REPORT_EVICTIONS */
    uint32_t batch;              /* hints in a message: 1 to 64; 16 */
    uint32_t flush_after_ms;     /* longest time that a hint waits for others; 10 */
    uint32_t timeout_ms;         /* for connecting, at least 1; 20000 */
    uint32_t reserved;           /* leave it as it is */
    const char *tls_roots;       /* for nbds: PEM file of roots to trust; NULL */
    const char *tls_certificate; /* PEM file of a certificate to show; NULL: none */
    const char *tls_key;         /* PEM file of its key */
    const char *client;          /* "ID[:KEY]" in hexadecimal, for clients that share one cache;
                                  * NULL: one of its own, with a key that nobody else knows */
} uc_client_options;

/* What was counted since the client connected. */
typedef struct uc_client_stats {
    uint64_t reads;            /* blocks read by the program */
    uint64_t read_hits;        /* those of them that were in the cache */
    uint64_t writes;           /* blocks written by the program */
    uint64_t write_hits;       /* those of them that were in the cache */
    uint64_t evictions;        /* blocks that replacement drove out */
    uint64_t capacity_blocks;  /* blocks in the cache at most */
    uint64_t resident_blocks;  /* blocks in it now */
    uint64_t read_us_total;    /* time of all reads together, in microseconds */
    uint64_t reconnections;    /* lost connections that were made again */
    uint64_t messages;         /* messages of hints sent */
    uint64_t messages_refused; /* messages that the server refused */
    uint64_t demotions;        /* blocks whose data was handed over */
    uint64_t hints_lost;       /* hints never sent, since too many waited */
} uc_client_stats;

int uc_client_options_init(uc_client_options *options);

/* Connects to nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH; nbds: over TLS. On error
 * *client is NULL. */
int uc_client_open(const char *uri, const uc_client_options *options, uc_client **client);

/* Any offset and length within the volume. fua not 0: durable before the call returns. After a
 * write that failed it is not known what is in the range. */
int uc_client_read(const uc_client *client, uint64_t offset, void *buffer, size_t length);
int uc_client_write(const uc_client *client, uint64_t offset, const void *data, size_t length,
                    int fua);

/* Makes everything durable that was done before. */
int uc_client_flush(const uc_client *client);

/* The content of a range is no longer needed; or shall be zeroes. */
int uc_client_trim(const uc_client *client, uint64_t offset, uint64_t length);
int uc_client_write_zeroes(const uc_client *client, uint64_t offset, uint64_t length, int fua);

/* Bytes of the volume, and of a block; 0 for NULL. */
uint64_t uc_client_size(const uc_client *client);
uint32_t uc_client_block_bytes(const uc_client *client);

/* stats_bytes: sizeof(uc_client_stats). */
int uc_client_stats_get(const uc_client *client, uc_client_stats *stats, size_t stats_bytes);

/* Waits for what is under way, says good-bye and frees the client; NULL is allowed. No other call
 * may be under way. */
void uc_client_close(uc_client *client);

#ifdef __cplusplus
}
#endif

#endif
