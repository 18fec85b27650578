/* Time, CPU, latency: what is measured and how. */
static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* 64 steps per power of two, so every figure is within 1.6 %. */
struct histogram {
    uint64_t count, max, step[64 * 60];
};

static inline void histogram_add(struct histogram *h, uint64_t ns)
{
    int power = 63 - __builtin_clzll(ns | 64);
    h->step[(power - 6) * 64 + ((ns >> (power - 6)) & 63)]++;
    h->count++;
    if (ns > h->max)
        h->max = ns;
}

static double histogram_us(const struct histogram *h, double share)
{
    uint64_t wanted = (uint64_t)((double)h->count * share), seen = 0;
    if (!h->count)
        return 0;
    for (int i = 0; i < 64 * 58; i++) {
        seen += h->step[i];
        if (seen > wanted) {
            int power = i / 64 + 6;
            uint64_t low = (1ull << power) | ((uint64_t)(i % 64) << (power - 6));
            return (double)low / 1000;
        }
    }
    return (double)h->max / 1000;
}

static double cpu_seconds(void)
{
    double total = 0;
    char list[4096], path[64], text[1024];
    snprintf(list, sizeof list, "%s", opt.cpu_of);
    for (char *pid = strtok(list, ","); pid; pid = strtok(NULL, ",")) {
        snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
        FILE *file = fopen(path, "r");
        unsigned long user, system;
        if (!file)
            continue;
        size_t n = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        text[n] = 0;
        char *after_name = strrchr(text, ')');
        if (after_name &&
            sscanf(after_name + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                   &system) == 2)
            total += (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
    }
    return total;
}

static double own_cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* The counter that the broker under test keeps in a shared file (allocations.c); 0 without one. */
static uint64_t probe_value(void)
{
    uint64_t value = 0;
    if (opt.probe) {
        int fd = open(opt.probe, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, &value, 8) != 8)
            die("cannot read the counter in %s: %s", opt.probe, strerror(errno));
        close(fd);
    }
    return value;
}

static void print_latency(const char *name, const struct histogram *h)
{
    printf("\"%s\":{\"p50\":%.2f,\"p99\":%.2f,\"max\":%.2f},", name, histogram_us(h, 0.5),
           histogram_us(h, 0.99), (double)h->max / 1000);
}
