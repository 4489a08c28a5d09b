// Preloaded in the lab's machines: lets masks name CPUs that this computer does not have.
//
// A mask that a program asks for is noted in /run/fakecpus under the process (and its birth, so that a recycled pid
// never matches), the kernel is given the same mask folded onto the CPUs there are, and whoever asks for a mask is told
// the noted one of the nearest ancestor.  It changes nothing else; /proc/PID/status still tells the folded mask.
//
// /etc/fakecpus: "<number of CPUs to pretend> <real CPU> <real CPU> ..."
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_CPUS = 1024, MASK_BYTES = MAX_CPUS / 8, MAX_DEPTH = 128, PATH_BYTES = 96 };

typedef struct {
  unsigned char bytes[MASK_BYTES];
} Mask;

typedef struct {
  int parent;                 // of the process, also when a thread is asked for
  unsigned long long birth;   // clock ticks since boot; 0: there is no such process
} Process;

static int pretended = 0;
static int real_cpus[MAX_CPUS];
static int real_count = 0;

static void put(Mask *mask, int cpu) { mask->bytes[cpu / 8] |= (unsigned char)(1 << cpu % 8); }
static int has(const unsigned char *bytes, int cpu) { return bytes[cpu / 8] >> cpu % 8 & 1; }

static void read_settings(void) {
  if (pretended) return;
  FILE *file = fopen("/etc/fakecpus", "re");
  int wanted = 0;
  if (file && fscanf(file, "%d", &wanted) == 1) {
    while (real_count < MAX_CPUS && fscanf(file, "%d", &real_cpus[real_count]) == 1) real_count++;
  }
  if (file) fclose(file);
  if (real_count == 0) real_count = 1;
  pretended = wanted > 0 && wanted <= MAX_CPUS ? wanted : real_count;
}

static Process read_process(int pid) {
  char text[1024], path[PATH_BYTES];
  Process process = {0, 0};
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return process;
  ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  if (size <= 0) return process;
  text[size] = 0;
  const char *rest = strrchr(text, ')');  // the name before it may hold anything
  unsigned long long birth = 0;
  if (rest && sscanf(rest + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                     &process.parent, &birth) == 2)
    process.birth = birth;
  return process;
}

static int group_of(int thread) {
  char line[128], path[PATH_BYTES];
  int group = thread;
  snprintf(path, sizeof path, "/proc/%d/status", thread);
  FILE *file = fopen(path, "re");
  if (!file) return thread;
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "Tgid: %d", &group) == 1) break;
  fclose(file);
  return group;
}

static void note_path(char *path, int pid, unsigned long long birth) {
  snprintf(path, PATH_BYTES, "/run/fakecpus/%d-%llu", pid, birth);
}

static void write_note(int pid, unsigned long long birth, const Mask *mask) {
  char path[PATH_BYTES], draft[PATH_BYTES + 16];
  note_path(path, pid, birth);
  snprintf(draft, sizeof draft, "%s.%ld", path, (long)syscall(SYS_gettid));
  int file = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return;
  int whole = write(file, mask->bytes, MASK_BYTES) == MASK_BYTES;
  close(file);
  if (!whole || rename(draft, path) < 0) unlink(draft);
}

static int read_note(int pid, unsigned long long birth, Mask *mask) {
  char path[PATH_BYTES];
  note_path(path, pid, birth);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  int whole = read(file, mask->bytes, MASK_BYTES) == MASK_BYTES;
  close(file);
  return whole;
}

// A mask is inherited: thread, then its process, then the ancestors.
static int find_note(int pid, Mask *mask) {
  for (int depth = 0; pid > 0 && depth < MAX_DEPTH; depth++) {
    Process process = read_process(pid);
    if (!process.birth) return 0;
    if (read_note(pid, process.birth, mask)) return 1;
    int group = depth ? pid : group_of(pid);
    pid = group != pid ? group : process.parent;
  }
  return 0;
}

int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *wanted) {
  read_settings();
  const unsigned char *asked = (const unsigned char *)wanted;
  Mask kept = {{0}}, folded = {{0}};
  int any = 0, known = (int)(size < MASK_BYTES ? size : MASK_BYTES) * 8;
  for (int cpu = 0; cpu < pretended && cpu < known; cpu++) {
    if (!has(asked, cpu)) continue;
    any = 1;
    put(&kept, cpu);
    put(&folded, real_cpus[cpu % real_count]);
  }
  if (!any) {
    errno = EINVAL;
    return -1;
  }
  int target = pid ? pid : (int)syscall(SYS_gettid);
  Process process = read_process(target);
  if (!process.birth) {
    errno = ESRCH;
    return -1;
  }
  if (syscall(SYS_sched_setaffinity, pid, sizeof folded.bytes, folded.bytes) < 0) return -1;
  write_note(target, process.birth, &kept);
  return 0;
}

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *found) {
  read_settings();
  if (size * 8 < (size_t)pretended) {
    errno = EINVAL;
    return -1;
  }
  Mask mask = {{0}};
  if (!find_note(pid ? pid : (int)syscall(SYS_gettid), &mask))
    for (int cpu = 0; cpu < pretended; cpu++) put(&mask, cpu);
  memset(found, 0, size);
  memcpy(found, mask.bytes, size < MASK_BYTES ? size : MASK_BYTES);
  return 0;
}

int pthread_getaffinity_np(pthread_t thread, size_t size, cpu_set_t *found) {
  (void)thread;
  return sched_getaffinity(0, size, found) < 0 ? errno : 0;
}

// glibc tells nobody the kernel's name of another thread: that one keeps the mask it has.
int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *wanted) {
  if (!pthread_equal(thread, pthread_self())) return 0;
  return sched_setaffinity(0, size, wanted) < 0 ? errno : 0;
}
