// Things that programs do to whoever lives with them in one process. Each ends by itself, with 0.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
static const char *path;
static volatile int stop;
static int shared_fd = -1;
static volatile long handled;

static void want(int right, const char *what) {
    if (!right) {
        printf("wrong: %s (errno %d)\n", what, errno);
        fflush(stdout);
        _exit(1);
    }
}

static char *page(void) {
    char *memory = NULL;
    want(posix_memalign((void **)&memory, PAGE, 16 * PAGE) == 0, "memory");
    return memory;
}

static void many_reads(int count) {
    char *memory = page();
    int fd = open(path, O_RDWR);
    want(fd >= 0, "open");
    for (int n = 0; n < count; n++) {
        want(pread(fd, memory + n % 16 * PAGE, PAGE, n % 64 * PAGE) == PAGE, "pread");
    }
    want(close(fd) == 0, "close");
    free(memory);
}

static void *reader(void *nothing) {
    char *memory = page();
    while (!stop) {
        ssize_t result = pread(shared_fd, memory, PAGE, 0);
        want(result == PAGE || (result == -1 && errno == EBADF), "pread while others close");
    }
    free(memory);
    return nothing;
}

// Threads that read while the descriptor is closed, opened, replaced under them.
static void close_under(void) {
    pthread_t threads[4];
    shared_fd = open(path, O_RDWR);
    for (int n = 0; n < 4; n++) pthread_create(&threads[n], NULL, reader, NULL);
    for (int n = 0; n < 3000; n++) {
        close(shared_fd);
        int again = open(n % 2 ? path : "/dev/zero", O_RDONLY);
        want(again == shared_fd || dup2(again, shared_fd) == shared_fd, "dup2");
        if (again != shared_fd) close(again);
    }
    stop = 1;
    for (int n = 0; n < 4; n++) pthread_join(threads[n], NULL);
}

static void handler(int number) {
    (void)number;
    static char memory[2 * PAGE];
    int saved = errno;
    if (pread(shared_fd, memory, PAGE, PAGE) == PAGE) handled++;
    errno = saved;
}

// A handler that reads, in the middle of anything.
static void signals(void) {
    struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    shared_fd = open(path, O_RDWR);
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &often, NULL);
    many_reads(100000);
    setitimer(ITIMER_REAL, &never, NULL);
    want(handled > 10, "the handler has run");
}

// As daemons do, again and again.
static void close_everything(void) {
    for (int n = 0; n < 20; n++) {
        many_reads(100);
        usleep(2000);
        if (n % 3 == 0) closefrom(3);
        else if (n % 3 == 1) close_range(3, ~0U, 0);
        else for (int fd = 3; fd < 1024; fd++) close(fd);
        // All numbers are free: nobody else has one.
        int fd = open("/dev/null", O_RDONLY);
        want(fd == 3, "the lowest number is free");
        close(fd);
    }
}

static void forks(void) {
    for (int n = 0; n < 50; n++) {
        pid_t child = fork();
        if (child == 0) {
            many_reads(500);
            if (n % 3 == 0) raise(SIGKILL);
            if (n % 3 == 1) _exit(0);
            exit(0);
        }
        int status;
        many_reads(100);
        want(waitpid(child, &status, 0) == child, "waitpid");
        want(WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "child");
    }
    // No child that is not ours.
    want(waitpid(-1, NULL, 0) == -1 && errno == ECHILD, "no other child");
}

// The first process goes, its child goes on.
static void daemon_(void) {
    int pipes[2];
    want(pipe(pipes) == 0, "pipe");
    if (fork() == 0) {
        if (fork() == 0) {
            setsid();
            usleep(100000);
            many_reads(1000);
            usleep(1200000);
            many_reads(1000);
            want(write(pipes[1], "x", 1) == 1, "write");
            exit(0);
        }
        exit(0);
    }
    wait(NULL);
    char byte;
    want(read(pipes[0], &byte, 1) == 1, "the daemon has ended well");
}

// vfork: the child runs in our memory.
static void vforks(void) {
    char *memory = page();
    int fd = open(path, O_RDWR);
    for (int n = 0; n < 50; n++) {
        pid_t child = vfork();
        if (child == 0) {
            close(fd);
            dup2(0, 9);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        want(pread(fd, memory, PAGE, n * PAGE) == PAGE, "pread after vfork");
    }
}

static void executes(void) {
    many_reads(100);
    execl("/bin/sh", "sh", "-c", "cat \"$0\" >/dev/null && exec cmp \"$0\" \"$0\"", path, NULL);
    want(0, "exec");
}

static void little_memory(void) {
    struct rlimit limit = {64 << 20, 64 << 20};
    setrlimit(RLIMIT_AS, &limit);
    execl("/proc/self/exe", "trouble", path, "reads", NULL);
    want(0, "exec");
}

static void little_files(void) {
    struct rlimit limit = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    execl("/proc/self/exe", "trouble", path, "reads", NULL);
    want(0, "exec");
}

int main(int count, char **arguments) {
    want(count == 3, "usage: trouble FILE WHAT");
    path = arguments[1];
    const char *what = arguments[2];
    if (!strcmp(what, "reads")) many_reads(20000);
    else if (!strcmp(what, "slow")) for (int n = 0; n < 40; n++) many_reads(200), usleep(50000);
    else if (!strcmp(what, "close-under")) close_under();
    else if (!strcmp(what, "signals")) signals();
    else if (!strcmp(what, "close-everything")) close_everything();
    else if (!strcmp(what, "forks")) forks();
    else if (!strcmp(what, "daemon")) daemon_();
    else if (!strcmp(what, "vforks")) vforks();
    else if (!strcmp(what, "executes")) executes();
    else if (!strcmp(what, "little-memory")) little_memory();
    else if (!strcmp(what, "little-files")) little_files();
    else want(0, "known");
    return 0;
}
