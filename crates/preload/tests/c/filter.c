// A program that installs a filter of system calls which kills it at any call but those that it
// makes itself, and then reads on. Ends with 0, unless it is killed.
//
// filter FILE BEFORE HOW CALLS: with BEFORE reads before the filter; HOW is prctl, seccomp, threads
// (the filter is for all threads), strict, fork (a child installs it), twice (for this thread, then
// for all), refused (the kernel refuses the filter).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define BASE ((char *)0x600000000000)

static const char *path;
static int fd;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    _exit(1);
}

// One instruction after the other: kill unless the call is one of these.
static const int allowed[] = {SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_read, SYS_openat, SYS_close,
                              SYS_dup, SYS_exit_group, SYS_prctl, SYS_seccomp};

static int install(const char *how) {
    enum { COUNT = sizeof allowed / sizeof *allowed };
    struct sock_filter code[3 + 2 * COUNT + 1] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    int n = 1;
    for (int at = 0; at < COUNT; at++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[at], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {n, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) fail("no_new_privs");
    if (!strcmp(how, "refused")) {
        program.len = 0;
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, NULL) != -1)
            fail("no filter is accepted");
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != -1
            || errno != EINVAL) fail("an empty filter is accepted");
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != -1 || errno != EINVAL)
            fail("an empty filter is accepted by prctl");
        return 0;
    }
    if (!strcmp(how, "prctl"))
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    int flags = strcmp(how, "threads") ? 0 : SECCOMP_FILTER_FLAG_TSYNC;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

// Every kind of tracked call, each of which would once have called the system.
static void read_on(int from, int times, int first) {
    for (int n = 0; n < times; n++) {
        char *at = BASE + n % 16 * PAGE;
        long offset = (long)(first + n % 64) * PAGE;
        struct iovec list[2] = {{at, PAGE / 2}, {at + PAGE / 2, PAGE / 2}};
        if (pread(from, at, PAGE, offset) != PAGE) fail("pread");
        if (n % 16 == 3 && preadv(from, list, 2, offset) != PAGE) fail("preadv");
        if (n % 16 == 5 && pwrite(from, at, PAGE, offset) != PAGE) fail("pwrite");
        if (n % 16 == 7 && read(from, at, PAGE) < 0) fail("read");
    }
}

static volatile int begun, done;

static void *reader(void *nothing) {
    for (; !done; begun = 1) read_on(fd, 64, 0);
    return nothing;
}

// Reads on for some seconds, without a call that tells the time.
static void long_after(void) {
    struct timespec first, now;
    clock_gettime(CLOCK_MONOTONIC, &first);
    do {
        read_on(fd, 16, 0);
        int other = openat(AT_FDCWD, path, O_RDWR);
        if (other < 0) fail("openat");
        int copy = dup(other);
        read_on(copy, 16, 64);
        if (close(copy) || close(other)) fail("close");
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - first.tv_sec < 3);
    // A file that stays open: it is found while it is read.
    int last = openat(AT_FDCWD, path, O_RDWR);
    clock_gettime(CLOCK_MONOTONIC, &first);
    do {
        read_on(last, 64, 128);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - first.tv_sec < 2);
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    path = arguments[1];
    const char *how = arguments[3];
    if (mmap(BASE, 16 * PAGE, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != BASE) fail("mmap");
    pthread_t thread;
    int has_thread = 0;
    if (atoi(arguments[2])) {
        fd = open(path, O_RDWR);
        if (fd < 0) fail("open");
        // Until the server is known, and contents are wanted.
        for (int n = 0; n < 10; n++) read_on(fd, 64, 0), usleep(100000);
        has_thread = strcmp(how, "fork") && strcmp(how, "strict");
        if (has_thread) pthread_create(&thread, NULL, reader, NULL);
        // The calls with which a thread begins are not allowed.
        while (has_thread && !begun) usleep(1000);
    }
    if (!strcmp(how, "fork")) {
        int status;
        if (!fork()) {
            if (install("seccomp")) fail("filter");
            if (!fd) fd = openat(AT_FDCWD, path, O_RDWR);
            long_after();
            exit(0);
        }
        wait(&status);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
    }
    if (!strcmp(how, "strict")) {
        // It allows read, write and _exit only, and forbids exit_group.
        static char byte;
        if (!fd) fd = open(path, O_RDWR);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) fail("strict");
        for (int n = 0; n < 1000; n++) read(fd, &byte, 1);
        syscall(SYS_exit, 0);
    }
    if (!strcmp(how, "twice")) {
        if (install("prctl") || install("threads")) fail("filter");
    } else if (install(how)) {
        fail("filter");
    }
    // Programs that it starts would begin to be tracked under its filter.
    const char *volumes = getenv("UNDERCROFT_VOLUMES");
    if (volumes && !*volumes == !strcmp(how, "refused")) fail("the volumes of children");
    if (!fd) fd = openat(AT_FDCWD, path, O_RDWR);
    long_after();
    // The call with which a thread ends is not allowed either: under a filter it reads to the end.
    if (has_thread && !strcmp(how, "refused")) done = 1, pthread_join(thread, NULL);
    exit(0);
}
