/* Fails the n-th call of one system function below one folder, once; all other calls pass through.
 *
 * Preloaded into Python, so that it is met by buffered files, SQLite and torch as well, which a shim in Python would not
 * see. fault_arm() is called through ctypes in the process that runs a command. Programs that the command starts are
 * armed by the variable FAULT_IN_CHILDREN instead: each of them fails at its own n-th call, and leaves the file
 * FAULT_MARK. fault_watch() names a function that is called at each counted call. The error KILL ends the process instead,
 * as kill -9 does; a write has then written the half of its data. The errors from CUT on change the file of the call, as
 * another process might at that moment, and let the call pass. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define KILL (-1)
enum { CUT = -2, EMPTY = -3, REPLACE = -4, PIPE = -5, GONE = -6, LINK = -7 };

static char folder[4096];
static char wanted[32];
static int left = 0, code = 0, fired = 0, armed = 0, seen = 0;
static void (*watch)(void) = NULL;

void fault_watch(void (*with)(void)) { watch = with; }

void fault_arm(const char *below, const char *call, int nth, int error) {
    snprintf(folder, sizeof folder, "%s", below);
    snprintf(wanted, sizeof wanted, "%s", call);
    left = nth;
    code = error;
    fired = 0;
    seen = 0;
    armed = 1;
}

__attribute__((constructor)) static void arm_child(void) {
    const char *order = getenv("FAULT_IN_CHILDREN"); /* folder|call|nth|error */
    char below[4096], call[32];
    int nth, error;
    if (order && sscanf(order, "%4095[^|]|%31[^|]|%d|%d", below, call, &nth, &error) == 4) fault_arm(below, call, nth, error);
}

int fault_fired(void) { return fired; }
int fault_seen(void) { return seen; }

static int hit(const char *call) {
    if (!armed || strcmp(call, wanted) != 0) return 0;
    seen++;
    if (watch) watch();
    if (--left != 0) return 0;
    armed = 0;
    fired = 1;
    const char *mark = getenv("FAULT_MARK");
    if (mark) close(creat(mark, 0600));
    if (code <= CUT) return 1;
    if (code == KILL && strcmp(call, "write") != 0) kill(getpid(), SIGKILL);
    errno = code;
    return 1;
}

/* What stands below FOLDER_other takes the place of what stands below FOLDER. */
static void change(const char *path) {
    char other[8192], gone[8192];
    struct stat found;
    snprintf(other, sizeof other, "%s_other%s", folder, path + strlen(folder));
    snprintf(gone, sizeof gone, "%s_gone", folder);
    switch (code) {
    case CUT: if (!stat(path, &found) && truncate(path, found.st_size / 2)) return; break;
    case EMPTY: if (truncate(path, 0)) return; break;
    case REPLACE: renameat(AT_FDCWD, other, AT_FDCWD, path); break;
    case GONE: renameat(AT_FDCWD, path, AT_FDCWD, gone); break;
    case PIPE: if (!renameat(AT_FDCWD, path, AT_FDCWD, gone)) mkfifoat(AT_FDCWD, path, 0600); break;
    case LINK: if (!renameat(AT_FDCWD, path, AT_FDCWD, gone)) symlinkat(other, AT_FDCWD, path); break;
    }
}

static int of_path(const char *call, const char *path) {
    char whole[8192];
    if (!armed || !path || strcmp(call, wanted) != 0) return 0;
    if (path[0] != '/') {
        if (!getcwd(whole, 4096)) return 0;
        strncat(whole, "/", 2);
        strncat(whole, path, 4000);
        path = whole;
    }
    if (strncmp(path, folder, strlen(folder)) != 0 || !hit(call)) return 0;
    if (code > CUT) return 1;
    int before = errno;
    change(path);
    errno = before;
    return 0;
}

static int of_file(const char *call, int descriptor) {
    char link[64], path[4096];
    if (!armed || strcmp(call, wanted) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0 || path[0] != '/') return 0; /* a pipe or socket has no path */
    path[length] = 0;
    return of_path(call, path);
}

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

ssize_t write(int fd, const void *data, size_t size) {
    int fails = of_file("write", fd);
    if (fails && code != KILL) return -1;
    ssize_t written = REAL(ssize_t, "write", int, const void *, size_t)(fd, data, fails ? size / 2 : size);
    if (fails) kill(getpid(), SIGKILL);
    return written;
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    int fails = of_file("write", fd);
    if (fails && code != KILL) return -1;
    ssize_t written = REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t)(fd, data, fails ? size / 2 : size, at);
    if (fails) kill(getpid(), SIGKILL);
    return written;
}
ssize_t read(int fd, void *data, size_t size) {
    if (of_file("read", fd)) return -1;
    return REAL(ssize_t, "read", int, void *, size_t)(fd, data, size);
}
ssize_t pread64(int fd, void *data, size_t size, off64_t at) {
    if (of_file("read", fd)) return -1;
    return REAL(ssize_t, "pread64", int, void *, size_t, off64_t)(fd, data, size, at);
}
int rename(const char *from, const char *to) {
    if (of_path("rename", to)) return -1;
    return REAL(int, "rename", const char *, const char *)(from, to);
}

/* Functions of a descriptor, and of a path; `call` is the name that a fault gives to a group of them. */
#define OF_FILE(call, name, parameters, arguments) \
    int name parameters { return of_file(call, fd) ? -1 : ((int (*) parameters)dlsym(RTLD_NEXT, #name))arguments; }
#define OF_PATH(call, name, parameters, arguments) \
    int name parameters { return of_path(call, path) ? -1 : ((int (*) parameters)dlsym(RTLD_NEXT, #name))arguments; }

OF_FILE("fsync", fsync, (int fd), (fd))
OF_FILE("fsync", fdatasync, (int fd), (fd))
OF_FILE("truncate", ftruncate, (int fd, off_t size), (fd, size))
OF_FILE("truncate", ftruncate64, (int fd, off64_t size), (fd, size))
OF_FILE("chmod", fchmod, (int fd, mode_t mode), (fd, mode))
OF_FILE("chmod", fchown, (int fd, uid_t user, gid_t group), (fd, user, group))
OF_FILE("lock", flock, (int fd, int operation), (fd, operation))
OF_FILE("stat", fstat, (int fd, struct stat *found), (fd, found))
OF_FILE("stat", fstat64, (int fd, struct stat64 *found), (fd, found))
OF_PATH("mkdir", mkdir, (const char *path, mode_t mode), (path, mode))
OF_PATH("unlink", unlink, (const char *path), (path))
OF_PATH("unlink", rmdir, (const char *path), (path))
OF_PATH("chmod", chmod, (const char *path, mode_t mode), (path, mode))
OF_PATH("stat", stat, (const char *path, struct stat *found), (path, found))
OF_PATH("stat", stat64, (const char *path, struct stat64 *found), (path, found))
OF_PATH("stat", lstat, (const char *path, struct stat *found), (path, found))
OF_PATH("stat", lstat64, (const char *path, struct stat64 *found), (path, found))
OF_PATH("stat", fstatat, (int at, const char *path, struct stat *found, int flags), (at, path, found, flags))
OF_PATH("stat", fstatat64, (int at, const char *path, struct stat64 *found, int flags), (at, path, found, flags))
OF_PATH("stat", access, (const char *path, int mode), (path, mode))
int unlinkat(int at, const char *path, int flags) { /* shutil.rmtree names what is in an open folder */
    if (at == AT_FDCWD ? of_path("unlink", path) : of_file("unlink", at)) return -1;
    return REAL(int, "unlinkat", int, const char *, int)(at, path, flags);
}
static int set_lock(const char *name, int fd, int operation, void *argument) {
    if ((operation == F_SETLK || operation == F_SETLKW) && of_file("lock", fd)) return -1;
    return REAL(int, name, int, int, ...)(fd, operation, argument);
}
int fcntl(int fd, int operation, ...) {
    va_list rest;
    va_start(rest, operation);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return set_lock("fcntl", fd, operation, argument);
}
int fcntl64(int fd, int operation, ...) {
    va_list rest;
    va_start(rest, operation);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return set_lock("fcntl64", fd, operation, argument);
}
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    if (fd >= 0 && of_file("mmap", fd)) return MAP_FAILED;
    return REAL(void *, "mmap", void *, size_t, int, int, int, off_t)(at, size, protection, flags, fd, offset);
}
void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t offset) {
    if (fd >= 0 && of_file("mmap", fd)) return MAP_FAILED;
    return REAL(void *, "mmap64", void *, size_t, int, int, int, off64_t)(at, size, protection, flags, fd, offset);
}
DIR *opendir(const char *path) {
    if (of_path("list", path)) return NULL;
    return REAL(DIR *, "opendir", const char *)(path);
}
DIR *fdopendir(int fd) {
    if (of_file("list", fd)) return NULL;
    return REAL(DIR *, "fdopendir", int)(fd);
}
struct dirent64 *readdir64(DIR *folder) {
    if (of_file("list", dirfd(folder))) return NULL;
    return REAL(struct dirent64 *, "readdir64", DIR *)(folder);
}
static int opened(const char *name, const char *path, int flags, mode_t mode) {
    if (of_path("open", path)) return -1;
    return REAL(int, name, const char *, int, ...)(path, flags, mode);
}
int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return opened("open", path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return opened("open64", path, flags, mode);
}
pid_t fork(void) {
    if (hit("fork")) return -1;
    return REAL(pid_t, "fork", void)();
}
pid_t vfork(void) {
    if (hit("fork")) return -1;
    return REAL(pid_t, "fork", void)();
}
