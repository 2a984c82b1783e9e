/* What the load generators share: time, latencies, and the end of a program that cannot go on. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Latencies: 64 buckets for each power of two of nanoseconds, so any quantile is right to 1.6 %. */
enum { SUB_BITS = 6, SUB_COUNT = 1 << SUB_BITS, BUCKET_COUNT = 64 * SUB_COUNT };

static uint64_t buckets[BUCKET_COUNT];
static uint64_t latency_count;
static double latency_sum_ns;
static int64_t latency_max_ns;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void *must(void *memory) {
    if (memory == NULL) die("memory");
    return memory;
}

static int bucket_of(int64_t nanoseconds) {
    uint64_t value = nanoseconds > 0 ? (uint64_t)nanoseconds : 1;
    if (value < SUB_COUNT) return (int)value;
    int shift = 63 - __builtin_clzll(value) - SUB_BITS;
    return (shift + 1) * SUB_COUNT + (int)((value >> shift) - SUB_COUNT);
}

static double bucket_upper_us(int bucket) {
    if (bucket < SUB_COUNT) return bucket / 1000.0;
    int shift = bucket / SUB_COUNT - 1;
    return (double)(((uint64_t)(bucket % SUB_COUNT + SUB_COUNT + 1) << shift) - 1) / 1000.0;
}

static double quantile_us(double fraction) {
    uint64_t total = 0, seen = 0;
    for (int i = 0; i < BUCKET_COUNT; i++) total += buckets[i];
    uint64_t wanted = (uint64_t)(fraction * (double)total);
    for (int i = 0; i < BUCKET_COUNT; i++) {
        seen += buckets[i];
        if (seen > wanted) return bucket_upper_us(i);
    }
    return (double)latency_max_ns / 1000.0;
}

static void note_latency(int64_t nanoseconds) {
    buckets[bucket_of(nanoseconds)]++;
    latency_count++;
    latency_sum_ns += (double)nanoseconds;
    if (nanoseconds > latency_max_ns) latency_max_ns = nanoseconds;
}

static void print_latency(void) {
    printf("\"latency_us\":{\"mean\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"max\":%.1f}",
        latency_count ? latency_sum_ns / (double)latency_count / 1000.0 : 0.0, quantile_us(0.5), quantile_us(0.9),
        quantile_us(0.99), quantile_us(0.999), (double)latency_max_ns / 1000.0);
}

static double own_cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec
        + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}
