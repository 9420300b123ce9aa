// Carries out a list of reads and writes: lines of how, which frame, which block, how many blocks.
// Frames are 4 KiB, from a fixed address on, so that whoever wrote the list knows them.
#define _GNU_SOURCE
#include <fcntl.h>
#include <libaio.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define BASE ((char *)0x600000000000)
#define FRAMES 4096

static int fd;
static io_context_t context;
static struct io_uring ring;

static void check(long result, long wanted, const char *what) {
    if (result != wanted) {
        printf("%s: %ld instead of %ld\n", what, result, wanted);
        exit(1);
    }
}

static void carry_out(char how, char *at, long offset, long bytes) {
    struct iovec list[2] = {{at, bytes / 2}, {at + bytes / 2, bytes - bytes / 2}};
    struct iocb request, *requests[1] = {&request};
    struct io_event event;
    struct io_uring_cqe *done;
    switch (how) {
    case 'r': check(pread(fd, at, bytes, offset), bytes, "pread"); break;
    case 'R': check(preadv(fd, list, 2, offset), bytes, "preadv"); break;
    case 'p':
        lseek(fd, offset, SEEK_SET);
        check(read(fd, at, bytes), bytes, "read");
        break;
    case 'w': check(pwrite(fd, at, bytes, offset), bytes, "pwrite"); break;
    case 'W': check(pwritev(fd, list, 2, offset), bytes, "pwritev"); break;
    case 'q':
        lseek(fd, offset, SEEK_SET);
        check(write(fd, at, bytes), bytes, "write");
        break;
    case 'a': case 'A':
        if (how == 'a') io_prep_pread(&request, fd, at, bytes, offset);
        else io_prep_pwrite(&request, fd, at, bytes, offset);
        check(io_submit(context, 1, requests), 1, "io_submit");
        check(io_getevents(context, 1, 1, &event, NULL), 1, "io_getevents");
        check(event.res, bytes, "libaio");
        break;
    case 'u': case 'U':
        if (how == 'u') io_uring_prep_read(io_uring_get_sqe(&ring), fd, at, bytes, offset);
        else io_uring_prep_write(io_uring_get_sqe(&ring), fd, at, bytes, offset);
        check(io_uring_submit_and_wait(&ring, 1), 1, "io_uring_submit_and_wait");
        check(io_uring_wait_cqe(&ring, &done), 0, "io_uring_wait_cqe");
        check(done->res, bytes, "io_uring");
        io_uring_cqe_seen(&ring, done);
        break;
    case 'f': {
        // By a child: memory is shared, so its frames are ours.
        int status;
        if (!fork()) {
            check(pread(fd, at, bytes, offset), bytes, "pread of a child");
            _exit(0);
        }
        wait(&status);
        check(WEXITSTATUS(status), 0, "child");
        break;
    }
    case 'm':
        // As InnoDB marks a frame that it frees.
        memset(at + 4, 0xff, 4);
        memset(at + 34, 0xff, 4);
        break;
    case 'c': memset(at + 100, offset / PAGE, bytes - 100); break;
    case 'v': {
        // As PostgreSQL writes a page: the copy has a checksum, the frame has not.
        char *copy = malloc(bytes);
        memcpy(copy, at, bytes);
        memset(copy + 8, 0x5a, 2);
        check(pwrite(fd, copy, bytes, offset), bytes, "pwrite of a copy");
        free(copy);
        break;
    }
    case 'x': check(munmap(at, bytes), 0, "munmap"); break;
    case 'X': check(pread(fd, at, bytes, offset), -1, "pread without memory"); break;
    case 's': usleep(offset / PAGE * 1000); break;
    case 'l': check(open("/dev/null", O_RDONLY) > 0, 1, "open"); break;
    default: check(how, 0, "unknown");
    }
}

int main(int count, char **arguments) {
    char how;
    long frame, block, blocks;
    if (count != 2) return 2;
    check((long)mmap(BASE, FRAMES * PAGE, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), (long)BASE, "mmap");
    fd = open(arguments[1], O_RDWR);
    check(fd >= 0, 1, "open");
    check(io_setup(4, &context), 0, "io_setup");
    int has_ring = io_uring_queue_init(4, &ring, 0) == 0;
    // Until the library is ready: it asks for memory in the background.
    usleep(500000);
    while (scanf(" %c %ld %ld %ld", &how, &frame, &block, &blocks) == 4) {
        if (!has_ring && (how == 'u' || how == 'U')) how = how == 'u' ? 'r' : 'w';
        carry_out(how, BASE + frame * PAGE, block * PAGE, blocks * PAGE);
    }
    usleep(300000);
    return 0;
}
