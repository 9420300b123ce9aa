/* A program that opens a plugin for itself (dlopen, RTLD_LOCAL), and the plugin, which brings its own
 * libaio and liburing: PLUGIN decides which of the two this is. With BARE the plugin takes io_submit
 * from wherever it is. Prints what the calls answer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef PLUGIN
#include <libaio.h>
#ifndef BARE
#include <liburing.h>
#endif

enum { BLOCK = 4096 };

int run(const char *path) {
    int fd = open(path, O_RDWR);
    char *buffer;
    if (fd < 0 || posix_memalign((void **)&buffer, BLOCK, 2 * BLOCK)) return 1;
    io_context_t context = NULL;
    if (syscall(SYS_io_setup, 4, &context)) return 2;
    struct iocb one, *list[] = {&one};
    struct io_event event;
    io_prep_pread(&one, fd, buffer, BLOCK, BLOCK);
    printf("io_submit %d\n", io_submit(context, 1, list));
    if (syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1) return 3;
    printf("read %ld, empty %d, wrong %d\n", (long)event.res, io_submit(context, 0, list),
           io_submit(NULL, 1, list));
#ifndef BARE
    struct io_uring ring;
    int result = io_uring_queue_init(4, &ring, 0);
    /* Where the kernel does not allow it. */
    if (result < 0) return 0;
    struct io_uring_sqe *request = io_uring_get_sqe(&ring);
    io_uring_prep_read(request, fd, buffer + BLOCK, BLOCK, 2 * BLOCK);
    printf("io_uring_submit %d\n", io_uring_submit(&ring));
    struct io_uring_cqe *done;
    if (io_uring_wait_cqe(&ring, &done)) return 4;
    printf("read %d\n", done->res);
#endif
    return 0;
}
#else
int main(int argc, char **argv) {
    if (argc != 3) return 100;
    void *plugin = dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL);
    if (!plugin) return fprintf(stderr, "%s\n", dlerror()), 101;
    int (*run)(const char *) = (int (*)(const char *))dlsym(plugin, "run");
    return run ? run(argv[2]) : 102;
}
#endif
