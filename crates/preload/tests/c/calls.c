// Every call that the library stands in front of, right and wrong, on a file that is tracked and
// on one that is not. Prints results, errno and a sum of the data: with the library and without it
// the same.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
static char *buffer;

static unsigned sum(const char *bytes, long count) {
    unsigned sum = 1;
    for (long at = 0; at < count; at++) sum = sum * 31 + (unsigned char)bytes[at];
    return sum;
}

// errno is set to 77 before each call: it must be left alone, or set as without the library.
#define SAY(call)                                                                     \
    do {                                                                              \
        memset(buffer, 1, 16 * PAGE);                                                 \
        errno = 77;                                                                   \
        long result = (long)(call);                                                   \
        int error = errno;                                                            \
        printf("%s = %ld errno %d sum %u\n", #call, result, error, sum(buffer, 16 * PAGE)); \
    } while (0)

ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __pread_chk(int, void *, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void *, size_t, off64_t, size_t);
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
ssize_t preadv64v2(int, const struct iovec *, int, off64_t, int);
ssize_t pwritev64v2(int, const struct iovec *, int, off64_t, int);

static void reads_and_writes(int fd) {
    struct iovec two[2] = {{buffer, PAGE}, {buffer + 8 * PAGE, 2 * PAGE}};
    SAY(read(fd, buffer, PAGE));
    SAY(__read_chk(fd, buffer, PAGE, PAGE));
    SAY(pread(fd, buffer, PAGE, 3 * PAGE));
    SAY(pread64(fd, buffer, 2 * PAGE, 5 * PAGE));
    SAY(__pread_chk(fd, buffer, 100, 7, 100));
    SAY(__pread64_chk(fd, buffer, 100, 7, 100));
    SAY(readv(fd, two, 2));
    SAY(preadv(fd, two, 2, PAGE));
    SAY(preadv64(fd, two, 2, 2 * PAGE));
    SAY(preadv2(fd, two, 2, 2 * PAGE, 0));
    SAY(preadv2(fd, two, 2, -1, 0));
    SAY(preadv64v2(fd, two, 2, PAGE, 0));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(write(fd, buffer, PAGE));
    SAY(pwrite(fd, buffer, PAGE, 2 * PAGE));
    SAY(pwrite64(fd, buffer, PAGE, 3 * PAGE));
    SAY(writev(fd, two, 2));
    SAY(pwritev(fd, two, 2, 0));
    SAY(pwritev64(fd, two, 2, 6 * PAGE));
    SAY(pwritev2(fd, two, 2, 6 * PAGE, 0));
    SAY(pwritev2(fd, two, 2, -1, 0));
    SAY(pwritev64v2(fd, two, 2, PAGE, 0));
    SAY(lseek(fd, 0, SEEK_CUR));
    // Wrong ones.
    SAY(pread(fd, buffer, PAGE, 1L << 40));
    SAY(pread(fd, buffer, PAGE, -5));
    SAY(pread(fd, (void *)16, PAGE, 0));
    SAY(pread(fd, buffer, 0, 0));
    SAY(preadv(fd, two, -1, 0));
    SAY(preadv(fd, NULL, 2, 0));
    SAY(preadv(fd, two, 2000, 0));
    SAY(preadv2(fd, two, 2, 0, 0x40000000));
    SAY(pwrite(fd, (void *)16, PAGE, 0));
    SAY(pwritev2(fd, two, 2, 0, 0x40000000));
    SAY(read(-1, buffer, 1));
    SAY(read(1000000, buffer, 1));
    SAY(pread(70000, buffer, 1, 0));
}

static void libaio(int fd) {
    io_context_t context = 0;
    struct iocb requests[4], *list[4];
    struct io_event events[4];
    struct iovec two[2] = {{buffer, PAGE}, {buffer + 8 * PAGE, 2 * PAGE}};
    SAY(io_setup(8, &context));
    io_prep_pread(&requests[0], fd, buffer + PAGE, PAGE, 9 * PAGE);
    io_prep_preadv(&requests[1], fd, two, 2, PAGE);
    for (int n = 0; n < 4; n++) list[n] = &requests[n];
    SAY(io_submit(context, 2, list) + 100 * io_getevents(context, 2, 2, events, NULL));
    io_prep_pwrite(&requests[2], fd, buffer, PAGE, 9 * PAGE);
    io_prep_pwritev(&requests[3], fd, two, 2, 3 * PAGE);
    SAY(io_submit(context, 2, list + 2) + 100 * io_getevents(context, 2, 2, events, NULL));
    SAY(io_submit(context, 0, list));
    SAY(io_submit(context, -1, list));
    SAY(io_submit(NULL, 1, list));
    io_prep_pread(&requests[0], -1, buffer, PAGE, 0);
    SAY(io_submit(context, 1, list));
    SAY(io_destroy(context));
}

static long uring_wait(struct io_uring *ring, int count) {
    long results = 0;
    for (struct io_uring_cqe *done; count-- > 0; io_uring_cqe_seen(ring, done)) {
        if (io_uring_wait_cqe(ring, &done)) return -1;
        results += done->res;
    }
    return results;
}

static void uring(int fd, unsigned flags) {
    struct io_uring ring;
    struct iovec two[2] = {{buffer, PAGE}, {buffer + 8 * PAGE, 2 * PAGE}};
    struct io_uring_cqe *done;
    struct __kernel_timespec time = {1, 0};
    int set_up = io_uring_queue_init(8, &ring, flags);
    printf("io_uring %d\n", set_up);
    if (set_up) return;
    for (int round = 0; round < 3; round++) {
        io_uring_prep_read(io_uring_get_sqe(&ring), fd, buffer + PAGE, PAGE, 4 * PAGE);
        io_uring_prep_readv(io_uring_get_sqe(&ring), fd, two, 2, PAGE);
        SAY(io_uring_submit(&ring) + 10 * uring_wait(&ring, 2));
        io_uring_prep_write(io_uring_get_sqe(&ring), fd, buffer, PAGE, 4 * PAGE);
        io_uring_prep_writev(io_uring_get_sqe(&ring), fd, two, 2, PAGE);
        io_uring_prep_nop(io_uring_get_sqe(&ring));
        SAY(io_uring_submit_and_wait(&ring, 3) + 10 * uring_wait(&ring, 3));
        io_uring_prep_read(io_uring_get_sqe(&ring), fd, buffer, PAGE, -1);
        SAY(io_uring_submit_and_wait_timeout(&ring, &done, 1, &time, NULL) +
            10 * uring_wait(&ring, 1));
        io_uring_prep_read(io_uring_get_sqe(&ring), -1, buffer, PAGE, 0);
        SAY(io_uring_submit_and_get_events(&ring) + 10 * uring_wait(&ring, 1));
    }
    struct iovec whole = {buffer, 16 * PAGE};
    SAY(io_uring_register_buffers(&ring, &whole, 1));
    io_uring_prep_read_fixed(io_uring_get_sqe(&ring), fd, buffer, PAGE, 4 * PAGE, 0);
    io_uring_prep_write_fixed(io_uring_get_sqe(&ring), fd, buffer, PAGE, 4 * PAGE, 0);
    SAY(io_uring_submit(&ring) > 0 ? uring_wait(&ring, 2) : -1);
    SAY(io_uring_register_files(&ring, &fd, 1));
    struct io_uring_sqe *fixed = io_uring_get_sqe(&ring);
    io_uring_prep_read(fixed, 0, buffer, PAGE, PAGE);
    fixed->flags |= IOSQE_FIXED_FILE;
    SAY(io_uring_submit(&ring) + 10 * uring_wait(&ring, 1));
    io_uring_queue_exit(&ring);
}

static void descriptors(const char *path) {
    int fds[16], count = 0;
    SAY(fds[count++] = open(path, O_RDWR));
    SAY(fds[count++] = open64(path, O_RDWR | O_CREAT, 0600));
    SAY(fds[count++] = openat(AT_FDCWD, path, O_RDONLY));
    SAY(fds[count++] = openat64(AT_FDCWD, path, O_RDWR));
    SAY(fds[count++] = __open_2(path, O_RDWR));
    SAY(fds[count++] = __open64_2(path, O_RDWR));
    SAY(fds[count++] = __openat_2(AT_FDCWD, path, O_RDWR));
    SAY(fds[count++] = __openat64_2(AT_FDCWD, path, O_RDWR));
    SAY(fds[count++] = dup(fds[0]));
    SAY(fds[count++] = fcntl(fds[0], F_DUPFD, 40));
    SAY(fds[count++] = fcntl(fds[0], F_DUPFD_CLOEXEC, 40));
    SAY(fds[count++] = dup2(fds[0], 50));
    SAY(fds[count++] = dup3(fds[0], 51, O_CLOEXEC));
    SAY(fcntl(51, F_GETFD));
    SAY(dup3(fds[0], fds[0], 0));
    SAY(dup2(-1, 50));
    SAY(pread(50, buffer, PAGE, PAGE));
    SAY(dup2(fds[0], fds[0]));
    SAY(open("/nowhere/at/all", O_RDONLY));
    SAY(open(path, O_RDWR | O_CREAT | O_EXCL, 0600));
    for (int n = 0; n < count; n++) SAY(pread(fds[n], buffer, PAGE, n * PAGE));
    SAY(ftruncate(fds[0], 20 * PAGE));
    SAY(ftruncate64(fds[0], 64 * PAGE));
    SAY(posix_fallocate(fds[0], 0, 64 * PAGE));
    SAY(posix_fallocate64(fds[0], 0, 64 * PAGE));
    SAY(fallocate(fds[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, PAGE));
    SAY(fallocate64(fds[0], 0, 0, 64 * PAGE));
    SAY(ftruncate(-1, 0));
    SAY(posix_fallocate(-1, 0, 1));
    SAY(fcntl(fds[0], F_SETFL, O_NONBLOCK));
    SAY(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    SAY(fcntl(fds[0], F_SETLK, &lock));
    sleep(1);
    // Another process must find the lock held: nobody here closed the file meanwhile.
    if (!fork()) {
        struct flock other = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
        _exit(fcntl(fds[0], F_SETLK, &other) == -1 ? 5 : 6);
    }
    int status;
    SAY(wait(&status) > 0 ? WEXITSTATUS(status) : -1);
    for (int n = 0; n < count; n++) SAY(close(fds[n]));
    SAY(close(fds[0]));
    FILE *stream = fdopen(open(path, O_RDWR), "r+");
    SAY(fread(buffer, 1, PAGE, stream));
    SAY(fclose(stream));
    SAY(close(creat("created", 0600)));
    SAY(close(creat64("created", 0600)));
    SAY(close_range(60, 70, 0));
    SAY(close_range(7, 6, 0));
    int pair[2];
    SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    SAY(write(pair[0], "hello", 5));
    SAY(read(pair[1], buffer, PAGE));
    SAY(pread(pair[1], buffer, PAGE, 0));
    SAY(close(pair[0]) + close(pair[1]));
}

int main(int count, char **arguments) {
    if (posix_memalign((void **)&buffer, PAGE, 16 * PAGE)) return 1;
    setvbuf(stdout, NULL, _IOFBF, 1 << 20);
    for (int n = 1; n < count; n++) {
        int fd = open(arguments[n], O_RDWR);
        if (fd < 0) return 1;
        // With the library the first use is before it is ready, the second after.
        reads_and_writes(fd);
        usleep(300000);
        lseek(fd, 0, SEEK_SET);
        reads_and_writes(fd);
        libaio(fd);
        uring(fd, 0);
        uring(fd, IORING_SETUP_SQE128);
        close(fd);
        descriptors(arguments[n]);
    }
    fflush(stdout);
    closefrom(3);
    puts("end");
    return 0;
}
