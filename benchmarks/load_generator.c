/* A load generator for RocketMQ brokers, fast enough not to be what is measured: one thread, epoll, no allocation while
 * it runs. Requests are byte templates as the official Java client writes them (JSON headers), with the numbers that
 * change patched in; answers are checked, never trusted:
 *
 *   send, batch   response code 0, and over the whole run every queue's offsets are gapless and each given once
 *                 (only this generator may write to the topic meanwhile)
 *   pull          response code 0, whole records, consecutive queue offsets
 *
 * Bodies are one constant text (default), or with --fill=json, --fill=random different ones out of a pool so large that
 * no frame of a compressed segment sees one twice; then batches have keys of their own as well.
 * With --topics=COUNT sends go to that many topics in turn, named --topic and five digits.
 * With --until=OFFSET a pull reads each queue once, up to that offset, and ends then; a refused pull is asked again.
 *
 * Closed loop (default): each connection keeps `window` requests in flight; latency runs from the write to the answer.
 * Open loop (--rate): requests are due at fixed times whatever the broker does, and latency runs from the time a request
 * was due, so a stall costs every request that it delayed (no coordinated omission).
 *
 * With --tls every connection is TLS and checks nothing (OpenSSL 3, loaded when it is needed).
 *
 * One JSON object on standard output. Exit status 0 unless it could not connect or was misused.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "load_measures.h"

enum { SEND_MESSAGE_V2 = 310, SEND_BATCH_MESSAGE = 320, PULL_MESSAGE = 11 };
enum { PULL_NOT_FOUND = 19, PULL_OFFSET_MOVED = 21 };
enum { SLOTS_PER_CONNECTION = 4096, CONNECTIONS_MAX = 1024, QUEUES_MAX = 1024, TOPICS_MAX = 100000, CODES_MAX = 4096 };
enum { OPAQUE_BASE = 1000000000, DRAIN_S = 5, OUT_CHUNK = 256 * 1024 };
enum { POOL_BYTES = 32 << 20, BATCH_MAX = 1024, TOPIC_DIGITS = 5 };

typedef enum { MODE_SEND, MODE_BATCH, MODE_PULL } mode_kind;
typedef enum { FILL_CONSTANT, FILL_JSON, FILL_RANDOM } fill_kind;

static struct {
    const char *host, *topic, *group, *broker_name;
    int port, queue_count, topic_count, connection_count, window, body_bytes, batch_count, pull_count;
    mode_kind mode;
    double seconds, warm_seconds, rate;
    bool check_offsets, has_topics, is_tls;
    fill_kind fill;
    int64_t until;
    const char *mode_name;
} options = {
    .host = "127.0.0.1", .topic = "Benchmark", .group = "BenchmarkGroup", .broker_name = "broker-a",
    .port = 10911, .queue_count = 4, .topic_count = 1, .connection_count = 1, .window = 64, .body_bytes = 100, .batch_count = 32,
    .pull_count = 32, .mode = MODE_SEND, .seconds = 5, .warm_seconds = 0, .rate = 0, .check_offsets = true,
    .mode_name = "send",
};

typedef struct {
    int64_t started_ns; /* when it was written, or in the open loop when it was due */
    int32_t generation;
    int32_t queue_id;
    int32_t place; /* of its queue among those of all topics */
    int64_t pull_offset;
    bool in_flight;
} request_slot;

typedef struct {
    int descriptor;
    void *tls; /* NULL: a plain connection */
    bool wants_write;
    int in_flight;
    int32_t free_slots[SLOTS_PER_CONNECTION];
    int free_count;
    request_slot slots[SLOTS_PER_CONNECTION];
    char *out;
    size_t out_start, out_end, out_capacity;
    char *in;
    size_t in_end, in_capacity;
    int32_t queue_id; /* pull: its queue */
    int32_t place; /* send: the next queue, counted over all topics */
    int64_t pull_offset;
    /* the request template and where its changing numbers are */
    char *template_bytes;
    size_t template_size, body_start;
    size_t at_opaque, at_topic, at_queue_id, at_born, at_key, at_unique_key;
    int queue_digits;
} connection;

typedef struct {
    int64_t count, least, greatest;
    __int128 sum;
} queue_check;

static connection connections[CONNECTIONS_MAX];
static queue_check *queue_checks; /* of every queue of every topic */
static int32_t place_count;
static uint64_t codes[CODES_MAX];
static uint64_t request_count, message_count, error_count, other_code_count, protocol_error_count, byte_count;
static uint64_t message_number;
static int64_t measure_from_ns, send_until_ns;
static char *batch_body;
static size_t batch_body_size;
static size_t batch_body_starts[BATCH_MAX], batch_key_starts[BATCH_MAX], batch_unique_starts[BATCH_MAX];
static char *pool;
static size_t pool_count, pool_next;
static int64_t finished_ns;

static int64_t wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void put_decimal(char *at, int digits, uint64_t value) {
    for (int i = digits - 1; i >= 0; i--) {
        at[i] = (char)('0' + value % 10);
        value /= 10;
    }
}

static void put_hex(char *at, int digits, uint64_t value) {
    for (int i = digits - 1; i >= 0; i--) {
        at[i] = "0123456789ABCDEF"[value & 15];
        value >>= 4;
    }
}

static void put_int32(char *at, uint32_t value) {
    value = htonl(value);
    memcpy(at, &value, 4);
}

static uint32_t get_int32(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static uint64_t get_int64(const char *at) {
    return (uint64_t)get_int32(at) << 32 | get_int32(at + 4);
}

static size_t find(const char *text, const char *mark) {
    const char *at = strstr(text, mark);
    if (at == NULL) {
        fprintf(stderr, "load_generator: the template lacks %s\n", mark);
        exit(1);
    }
    return (size_t)(at - text) + strlen(mark);
}

/* The body of a batch send: every record with its own properties, as the client encodes them. */
static void build_batch_body(void) {
    char properties[256];
    batch_body = must(malloc((size_t)options.batch_count * ((size_t)options.body_bytes + 256)));
    for (int i = 0; i < options.batch_count; i++) {
        int properties_size = snprintf(properties, sizeof properties,
            "KEYS%ckey%08d%cUNIQ_KEY%c0A0700016AE04E0E2F2A68B4%08X%cWAIT%ctrue%cTAGS%cTagA%c",
            1, i, 2, 1, i, 2, 1, 2, 1, 2);
        char *at = batch_body + batch_body_size;
        size_t size = 4 + 4 + 4 + 4 + 4 + (size_t)options.body_bytes + 2 + (size_t)properties_size;
        put_int32(at, (uint32_t)size);
        memset(at + 4, 0, 12); /* magic, CRC and flag: the broker fills them in */
        put_int32(at + 16, (uint32_t)options.body_bytes);
        memset(at + 20, 'b', (size_t)options.body_bytes);
        batch_body_starts[i] = (size_t)(at - batch_body) + 20;
        at += 20 + options.body_bytes;
        at[0] = (char)(properties_size >> 8);
        at[1] = (char)properties_size;
        memcpy(at + 2, properties, (size_t)properties_size);
        size_t properties_start = (size_t)(at - batch_body) + 2;
        batch_key_starts[i] = properties_start + find(properties, "KEYS\001key");
        batch_unique_starts[i] = properties_start + find(properties, "2F2A68B4");
        batch_body_size += size;
    }
}

static uint64_t next_random(void) {
    static uint64_t state = 0x9E3779B97F4A7C15u;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545F4914F6CDD1Du;
}

/* Bodies for --fill, one after the other. */
static void build_pool(void) {
    static const char *const places[] = { "EWR", "JFK", "LGA", "IAH", "MIA", "ORD", "ATL", "LAX", "BOS", "SFO" };
    size_t body_bytes = (size_t)options.body_bytes;
    pool_count = POOL_BYTES / body_bytes;
    pool = must(malloc(pool_count * body_bytes + 256));
    for (size_t i = 0; i < pool_count; i++) {
        char *body = pool + i * body_bytes;
        for (size_t at = 0; at < body_bytes;) {
            if (options.fill == FILL_RANDOM) {
                uint64_t value = next_random();
                memcpy(body + at, &value, 8); /* what is too much is overwritten by the next body */
                at += 8;
                continue;
            }
            uint64_t value = next_random();
            at += (size_t)snprintf(body + at, 200,
                "{\"flight\":%u,\"tail\":\"N%05u\",\"from\":\"%s\",\"to\":\"%s\",\"delay\":%d,\"at\":\"2013-%02u-%02uT%02u:%02u\"}",
                (unsigned)(value & 8191), (unsigned)(value >> 13 & 65535), places[(value >> 29) % 3],
                places[(value >> 31) % 10], (int)(value >> 35 & 127) - 20, (unsigned)(value >> 42) % 12 + 1,
                (unsigned)(value >> 46) % 28 + 1, (unsigned)(value >> 51) % 24, (unsigned)(value >> 56) % 60);
        }
    }
}

/* Give the request at `frame` bodies of its own, a batch keys of its own too. */
static void fill_bodies(const connection *c, char *frame) {
    size_t body_bytes = (size_t)options.body_bytes;
    int count = options.mode == MODE_BATCH ? options.batch_count : 1;
    for (int i = 0; i < count; i++) {
        char *start = frame + c->body_start;
        memcpy(start + (options.mode == MODE_BATCH ? batch_body_starts[i] : 0), pool + pool_next * body_bytes, body_bytes);
        pool_next = (pool_next + 1) % pool_count;
        if (options.mode == MODE_BATCH) {
            put_decimal(start + batch_key_starts[i], 8, message_number % 100000000u);
            put_hex(start + batch_unique_starts[i], 8, message_number);
            message_number++;
        }
    }
}

/* One whole request frame with zeros where numbers will be patched in; each number has a fixed width. */
static void build_template(connection *c, int number) {
    char header[2048];
    const char *body = "";
    size_t body_size = 0;
    char *filler = NULL;
    bool is_batch = options.mode == MODE_BATCH;
    c->queue_digits = options.queue_count <= 10 ? 1 : options.queue_count <= 100 ? 2 : 3;
    int size = snprintf(header, sizeof header,
        "{\"code\":%d,\"extFields\":{\"a\":\"%s\",\"b\":\"%s%s\",\"c\":\"TBW102\",\"d\":\"4\",\"e\":\"%0*d\",\"f\":\"0\","
        "\"g\":\"0000000000000\",\"h\":\"0\",\"i\":\"%sUNIQ_KEY\\u0001%016X0000000000000000\\u0002"
        "WAIT\\u0001true\\u0002%s\",\"j\":\"0\",\"k\":\"false\",\"m\":\"%s\",\"n\":\"%s\"},\"flag\":0,"
        "\"language\":\"JAVA\",\"opaque\":0000000000,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}",
        is_batch ? SEND_BATCH_MESSAGE : SEND_MESSAGE_V2, options.group, options.topic, options.has_topics ? "00000" : "", c->queue_digits,
        0, is_batch ? "" : "KEYS\\u0001key0000000000\\u0002", 0x0A070001 + number,
        is_batch ? "" : "TAGS\\u0001TagA\\u0002", is_batch ? "true" : "false", options.broker_name);
    if (size < 0 || (size_t)size >= sizeof header) {
        fprintf(stderr, "load_generator: names are too long\n");
        exit(1);
    }
    if (is_batch) {
        body = batch_body;
        body_size = batch_body_size;
    } else {
        body_size = (size_t)options.body_bytes;
        body = filler = must(malloc(body_size + 1));
        for (size_t i = 0; i < body_size; i++) filler[i] = (char)('a' + i % 26);
    }
    c->template_size = 8 + (size_t)size + body_size;
    c->template_bytes = must(malloc(c->template_size));
    put_int32(c->template_bytes, (uint32_t)(4 + (size_t)size + body_size));
    put_int32(c->template_bytes + 4, (uint32_t)size); /* serialisation type 0: JSON */
    memcpy(c->template_bytes + 8, header, (size_t)size);
    memcpy(c->template_bytes + 8 + size, body, body_size);
    c->body_start = 8 + (size_t)size;
    c->at_opaque = 8 + find(header, "\"opaque\":");
    c->at_topic = 8 + find(header, "\"b\":\"") + strlen(options.topic);
    c->at_queue_id = 8 + find(header, "\"e\":\"");
    c->at_born = 8 + find(header, "\"g\":\"");
    c->at_unique_key = 8 + find(header, "UNIQ_KEY\\u0001") + 16;
    c->at_key = is_batch ? 0 : 8 + find(header, "KEYS\\u0001key");
    free(filler);
}

static void reserve_out(connection *c, size_t size) {
    if (c->out_end + size <= c->out_capacity) return;
    memmove(c->out, c->out + c->out_start, c->out_end - c->out_start);
    c->out_end -= c->out_start;
    c->out_start = 0;
    while (c->out_end + size > c->out_capacity) {
        c->out_capacity *= 2;
        c->out = must(realloc(c->out, c->out_capacity));
    }
}

/* Append one request to the connection's output; `started_ns` is what its latency runs from. */
static void issue(connection *c, int64_t started_ns) {
    int slot_number = c->free_slots[--c->free_count];
    request_slot *slot = &c->slots[slot_number];
    slot->generation = (slot->generation + 1) & 0x1FFFF;
    slot->started_ns = started_ns;
    slot->in_flight = true;
    c->in_flight++;
    uint64_t opaque = OPAQUE_BASE + ((uint64_t)slot->generation << 12 | (uint64_t)slot_number);
    if (options.mode == MODE_PULL) {
        char header[1024];
        slot->queue_id = c->queue_id;
        slot->pull_offset = c->pull_offset;
        int size = snprintf(header, sizeof header,
            "{\"code\":%d,\"extFields\":{\"queueId\":\"%d\",\"maxMsgBytes\":\"262144\",\"maxMsgNums\":\"%d\",\"sysFlag\":\"4\","
            "\"suspendTimeoutMillis\":\"15000\",\"commitOffset\":\"0\",\"bname\":\"%s\",\"topic\":\"%s\",\"subscription\":\"*\","
            "\"queueOffset\":\"%" PRId64 "\",\"expressionType\":\"TAG\",\"subVersion\":\"0\",\"consumerGroup\":\"%s\"},\"flag\":0,"
            "\"language\":\"JAVA\",\"opaque\":%" PRIu64 ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}",
            PULL_MESSAGE, c->queue_id, options.pull_count, options.broker_name, options.topic, c->pull_offset,
            options.group, opaque);
        reserve_out(c, 8 + (size_t)size);
        put_int32(c->out + c->out_end, (uint32_t)(4 + size));
        put_int32(c->out + c->out_end + 4, (uint32_t)size);
        memcpy(c->out + c->out_end + 8, header, (size_t)size);
        c->out_end += 8 + (size_t)size;
        c->pull_offset += options.pull_count;
        return;
    }
    reserve_out(c, c->template_size);
    char *frame = c->out + c->out_end;
    memcpy(frame, c->template_bytes, c->template_size);
    slot->place = c->place;
    slot->queue_id = c->place / options.topic_count;
    c->place = (c->place + 1) % place_count;
    put_decimal(frame + c->at_opaque, 10, opaque);
    if (options.has_topics) put_decimal(frame + c->at_topic, TOPIC_DIGITS, (uint64_t)(slot->place % options.topic_count));
    put_decimal(frame + c->at_queue_id, c->queue_digits, (uint64_t)slot->queue_id);
    put_decimal(frame + c->at_born, 13, (uint64_t)wall_ms());
    put_hex(frame + c->at_unique_key, 16, message_number);
    if (c->at_key != 0) put_decimal(frame + c->at_key, 10, message_number % 10000000000u);
    message_number++;
    if (pool != NULL) fill_bodies(c, frame);
    c->out_end += c->template_size;
}

static void watch(int epoll, connection *c, bool wants_write) {
    if (c->wants_write == wants_write) return;
    c->wants_write = wants_write;
    struct epoll_event event = { .events = EPOLLIN | (wants_write ? EPOLLOUT : 0), .data.ptr = c };
    epoll_ctl(epoll, EPOLL_CTL_MOD, c->descriptor, &event);
}

/* The few functions of OpenSSL that are used, by their published names: no header is needed to build this program. */
static struct {
    void *(*method)(void);
    void *(*new_context)(const void *method);
    void *(*new_connection)(void *context);
    int (*set_descriptor)(void *tls, int descriptor);
    int (*connect)(void *tls);
    int (*read)(void *tls, void *bytes, int size);
    int (*write)(void *tls, const void *bytes, int size);
    int (*error)(const void *tls, int result);
    long (*control)(void *tls, int command, long value, void *pointer);
    void *context;
} openssl;

enum { SSL_WANT_READ = 2, SSL_WANT_WRITE = 3, SSL_ZERO_RETURN = 6 };
enum { SSL_SET_MODE = 33, SSL_SET_READ_AHEAD = 41, SSL_PARTIAL_WRITE = 1, SSL_MOVING_BUFFER = 2 };

static void load_openssl(void) {
    void *library = dlopen("libssl.so.3", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "load_generator: --tls needs libssl.so.3: %s\n", dlerror());
        exit(2);
    }
    const struct { const char *name; void *at; } functions[] = {
        { "TLS_client_method", &openssl.method }, { "SSL_CTX_new", &openssl.new_context },
        { "SSL_new", &openssl.new_connection }, { "SSL_set_fd", &openssl.set_descriptor },
        { "SSL_connect", &openssl.connect }, { "SSL_read", &openssl.read }, { "SSL_write", &openssl.write },
        { "SSL_get_error", &openssl.error }, { "SSL_ctrl", &openssl.control },
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        *(void **)functions[i].at = must(dlsym(library, functions[i].name));
    }
    openssl.context = must(openssl.new_context(openssl.method()));
}

static void shake_hands(connection *c) {
    c->tls = must(openssl.new_connection(openssl.context));
    openssl.control(c->tls, SSL_SET_MODE, SSL_PARTIAL_WRITE | SSL_MOVING_BUFFER, NULL);
    openssl.control(c->tls, SSL_SET_READ_AHEAD, 1, NULL);
    openssl.set_descriptor(c->tls, c->descriptor);
    if (openssl.connect(c->tls) != 1) {
        errno = EPROTO;
        die("TLS handshake");
    }
}

static ssize_t tls_result(connection *c, int result) {
    if (result > 0) return result;
    switch (openssl.error(c->tls, result)) {
    case SSL_WANT_READ:
    case SSL_WANT_WRITE: errno = EAGAIN; return -1;
    case SSL_ZERO_RETURN: return 0;
    default: if (errno == 0 || errno == EAGAIN) errno = EPROTO; return -1;
    }
}

static ssize_t send_bytes(connection *c, const char *bytes, size_t size) {
    if (c->tls == NULL) return send(c->descriptor, bytes, size, MSG_NOSIGNAL);
    errno = 0;
    return tls_result(c, openssl.write(c->tls, bytes, (int)size));
}

static ssize_t receive_bytes(connection *c, char *bytes, size_t size) {
    if (c->tls == NULL) return recv(c->descriptor, bytes, size, 0);
    errno = 0;
    return tls_result(c, openssl.read(c->tls, bytes, (int)size));
}

static void flush_out(int epoll, connection *c) {
    while (c->out_start < c->out_end) {
        ssize_t written = send_bytes(c, c->out + c->out_start, c->out_end - c->out_start);
        if (written < 0) {
            if (errno == EAGAIN) break;
            if (errno == EINTR) continue;
            die("send");
        }
        c->out_start += (size_t)written;
    }
    if (c->out_start == c->out_end) c->out_start = c->out_end = 0;
    watch(epoll, c, c->out_start < c->out_end);
}

static int64_t number_after(const char *header, size_t size, const char *mark, int64_t missing) {
    const char *at = memmem(header, size, mark, strlen(mark));
    if (at == NULL) return missing;
    at += strlen(mark);
    while (at < header + size && (*at == '"' || *at == ' ' || *at == ':')) at++;
    bool negative = at < header + size && *at == '-';
    if (negative) at++;
    int64_t value = 0;
    for (; at < header + size && *at >= '0' && *at <= '9'; at++) value = value * 10 + (*at - '0');
    return negative ? -value : value;
}

/* Count the records of a pull answer; -1 when they are not whole, or not the offsets that were asked for. */
static int64_t check_records(const char *body, size_t size, const request_slot *slot) {
    int64_t count = 0;
    for (size_t at = 0; at < size; count++) {
        if (size - at < 28) return -1;
        uint32_t record_size = get_int32(body + at);
        if (record_size < 28 || record_size > size - at) return -1;
        if ((int64_t)get_int64(body + at + 20) != slot->pull_offset + count) return -1;
        if ((int32_t)get_int32(body + at + 12) != slot->queue_id) return -1;
        at += record_size;
    }
    return count;
}

static void note_offsets(int32_t place, int64_t first, int64_t count) {
    if (place < 0 || place >= place_count) {
        protocol_error_count++;
        return;
    }
    queue_check *check = &queue_checks[place];
    if (check->count == 0 || first < check->least) check->least = first;
    if (check->count == 0 || first + count - 1 > check->greatest) check->greatest = first + count - 1;
    check->count += count;
    check->sum += (__int128)count * (2 * first + count - 1) / 2;
}

static void take_answer(connection *c, const char *frame, size_t size, int64_t now) {
    uint32_t header_size = get_int32(frame) & 0xFFFFFF;
    if (header_size + 4 > size || frame[0] != 0) {
        protocol_error_count++;
        return;
    }
    const char *header = frame + 4;
    int64_t opaque = number_after(header, header_size, "\"opaque\"", -1) - OPAQUE_BASE;
    int64_t code = number_after(header, header_size, "\"code\"", -1);
    request_slot *slot = &c->slots[opaque & (SLOTS_PER_CONNECTION - 1)];
    if (opaque < 0 || !slot->in_flight || slot->generation != opaque >> 12) {
        protocol_error_count++;
        return;
    }
    slot->in_flight = false;
    c->in_flight--;
    c->free_slots[c->free_count++] = (int32_t)(opaque & (SLOTS_PER_CONNECTION - 1));

    int64_t messages = 0;
    bool is_right = code == 0;
    if (options.mode == MODE_PULL) {
        if (code == 0) {
            messages = check_records(frame + 4 + header_size, size - 4 - header_size, slot);
            if (messages < 0) protocol_error_count++, messages = 0;
        } else if (code == PULL_NOT_FOUND || code == PULL_OFFSET_MOVED) {
            /* the end of the queue: begin again */
            int64_t least = number_after(header, header_size, "\"minOffset\"", 0);
            if (c->pull_offset > least) c->pull_offset = least;
            is_right = true;
        }
        if (messages > 0 && messages < options.pull_count) c->pull_offset = slot->pull_offset + messages;
        if (options.until > 0 && messages == 0) c->pull_offset = slot->pull_offset;
    } else if (code == 0) {
        messages = options.mode == MODE_BATCH ? options.batch_count : 1;
        int64_t queue_offset = number_after(header, header_size, "\"queueOffset\"", -1);
        int64_t queue_id = number_after(header, header_size, "\"queueId\"", -1);
        if (queue_offset < 0 || queue_id != slot->queue_id) protocol_error_count++;
        else note_offsets(slot->place, queue_offset, messages);
    }
    if (now < measure_from_ns || now >= send_until_ns) return;
    if (!is_right) {
        error_count++;
        if (code >= 0 && code < CODES_MAX) codes[code]++;
        else other_code_count++;
        return;
    }
    int64_t latency = now - slot->started_ns;
    note_latency(latency);
    request_count++;
    message_count += (uint64_t)messages;
    byte_count += size + 4;
}

static void read_answers(connection *c) {
    for (;;) {
        if (c->in_capacity - c->in_end < 65536) {
            c->in_capacity *= 2;
            c->in = must(realloc(c->in, c->in_capacity));
        }
        ssize_t got = receive_bytes(c, c->in + c->in_end, c->in_capacity - c->in_end);
        if (got == 0) {
            errno = ECONNRESET;
            die("the broker closed a connection");
        }
        if (got < 0) {
            if (errno == EAGAIN) return;
            if (errno == EINTR) continue;
            die("recv");
        }
        bool drained = c->tls == NULL && (size_t)got < c->in_capacity - c->in_end;
        c->in_end += (size_t)got;
        int64_t now = now_ns();
        size_t at = 0;
        while (c->in_end - at >= 4) {
            size_t frame_size = get_int32(c->in + at);
            if (c->in_end - at < 4 + frame_size) break;
            take_answer(c, c->in + at + 4, frame_size, now);
            at += 4 + frame_size;
        }
        memmove(c->in, c->in + at, c->in_end - at);
        c->in_end -= at;
        if (drained) return;
    }
}

static void open_connection(int epoll, connection *c, int number) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)options.port) };
    if (inet_pton(AF_INET, options.host, &address.sin_addr) != 1) {
        errno = EINVAL;
        die(options.host);
    }
    c->descriptor = socket(AF_INET, SOCK_STREAM, 0);
    if (c->descriptor < 0 || connect(c->descriptor, (struct sockaddr *)&address, sizeof address) < 0) die("connect");
    int one = 1;
    setsockopt(c->descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (options.is_tls) shake_hands(c);
    fcntl(c->descriptor, F_SETFL, fcntl(c->descriptor, F_GETFL) | O_NONBLOCK);
    c->out_capacity = OUT_CHUNK;
    c->out = must(malloc(c->out_capacity));
    c->in_capacity = OUT_CHUNK;
    c->in = must(malloc(c->in_capacity));
    c->queue_id = number % options.queue_count;
    c->place = (int32_t)((int64_t)number * place_count / options.connection_count);
    for (int i = 0; i < SLOTS_PER_CONNECTION; i++) c->free_slots[c->free_count++] = SLOTS_PER_CONNECTION - 1 - i;
    if (options.mode != MODE_PULL) build_template(c, number);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->descriptor, &event) < 0) die("epoll_ctl");
}

/* Whether a connection has read its queue up to --until. */
static bool is_read(const connection *c) {
    return options.until > 0 && c->pull_offset >= options.until;
}

static bool everything_is_read(void) {
    for (int i = 0; i < options.connection_count; i++)
        if (connections[i].in_flight > 0 || !is_read(&connections[i])) return false;
    return true;
}

static int total_in_flight(void) {
    int total = 0;
    for (int i = 0; i < options.connection_count; i++) total += connections[i].in_flight;
    return total;
}

static void run(int epoll) {
    struct epoll_event events[256];
    int64_t start = now_ns();
    measure_from_ns = start + (int64_t)(options.warm_seconds * 1e9);
    send_until_ns = measure_from_ns + (int64_t)(options.seconds * 1e9);
    int timer = -1;
    int64_t due_count = 0;
    int next_connection = 0;
    if (options.rate > 0) {
        timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
        struct epoll_event event = { .events = EPOLLIN, .data.ptr = NULL };
        if (timer < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event) < 0) die("timerfd");
    } else {
        for (int i = 0; i < options.connection_count; i++) {
            for (int w = 0; w < options.window; w++) issue(&connections[i], now_ns());
            flush_out(epoll, &connections[i]);
        }
    }
    for (;;) {
        int64_t now = now_ns();
        if (options.until > 0 && everything_is_read()) {
            finished_ns = now;
            break;
        }
        if (now >= send_until_ns && (total_in_flight() == 0 || now >= send_until_ns + DRAIN_S * 1000000000LL)) break;
        if (timer >= 0 && now < send_until_ns) {
            for (;;) {
                int64_t due_ns = start + (int64_t)((double)due_count * 1e9 / options.rate);
                if (due_ns > now || due_ns >= send_until_ns) {
                    struct itimerspec at = { .it_value = { due_ns / 1000000000, due_ns % 1000000000 } };
                    timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
                    break;
                }
                connection *c = &connections[next_connection];
                if (c->free_count == 0) break; /* as much as one connection can owe; its time goes on counting */
                issue(c, due_ns);
                due_count++;
                next_connection = (next_connection + 1) % options.connection_count;
            }
            for (int i = 0; i < options.connection_count; i++)
                if (connections[i].out_end > 0 && !connections[i].wants_write) flush_out(epoll, &connections[i]);
        }
        int ready = epoll_wait(epoll, events, 256, now < send_until_ns ? 100 : 10);
        for (int i = 0; i < ready; i++) {
            connection *c = events[i].data.ptr;
            if (c == NULL) {
                uint64_t expirations;
                if (read(timer, &expirations, sizeof expirations) < 0 && errno != EAGAIN) die("timer");
                continue;
            }
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_answers(c);
            if (timer < 0) {
                int64_t issued_ns = now_ns();
                if (issued_ns < send_until_ns)
                    while (c->in_flight < options.window && !is_read(c)) issue(c, issued_ns);
            }
            if (c->out_end > 0) flush_out(epoll, c);
        }
    }
}

static bool offsets_are_gapless(void) {
    for (int i = 0; i < place_count; i++) {
        queue_check *check = &queue_checks[i];
        if (check->count == 0) continue;
        if (check->greatest - check->least + 1 != check->count) return false;
        if (check->sum * 2 != (__int128)check->count * (check->least + check->greatest)) return false;
    }
    return true;
}

static void report(void) {
    double seconds = finished_ns > 0 ? (double)(finished_ns - measure_from_ns) / 1e9 : options.seconds;
    printf("{\"mode\":\"%s\",\"connections\":%d,\"window\":%d,\"body_bytes\":%d,\"rate\":%.0f,\"seconds\":%.3f,"
           "\"requests\":%" PRIu64 ",\"messages\":%" PRIu64 ",\"answer_bytes\":%" PRIu64 ",\"requests_per_s\":%.1f,"
           "\"messages_per_s\":%.1f,\"errors\":%" PRIu64 ",\"protocol_errors\":%" PRIu64 ",\"unanswered\":%d,\"codes\":{",
        options.mode_name, options.connection_count, options.window, options.body_bytes, options.rate, seconds,
        request_count, message_count, byte_count, (double)request_count / seconds,
        (double)message_count / seconds, error_count, protocol_error_count, total_in_flight());
    const char *separator = "";
    for (int code = 0; code < CODES_MAX; code++) {
        if (codes[code] == 0) continue;
        printf("%s\"%d\":%" PRIu64, separator, code, codes[code]);
        separator = ",";
    }
    if (other_code_count) printf("%s\"other\":%" PRIu64, separator, other_code_count);
    printf("},");
    print_latency();
    printf(",");
    printf("\"offsets_gapless\":%s,\"generator_cpu_s\":%.3f}\n",
        options.mode == MODE_PULL || !options.check_offsets ? "null" : offsets_are_gapless() ? "true" : "false", own_cpu_s());
}

static double number(const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (*text == 0 || *end != 0 || value < 0) {
        fprintf(stderr, "load_generator: not a number: %s\n", text);
        exit(2);
    }
    return value;
}

int main(int count, char **arguments) {
    static const struct option names[] = {
        { "host", 1, 0, 'h' }, { "port", 1, 0, 'p' }, { "topic", 1, 0, 't' }, { "group", 1, 0, 'g' },
        { "broker-name", 1, 0, 'n' }, { "queues", 1, 0, 'q' }, { "mode", 1, 0, 'm' }, { "connections", 1, 0, 'c' },
        { "window", 1, 0, 'w' }, { "body", 1, 0, 'b' }, { "batch", 1, 0, 'B' }, { "pull", 1, 0, 'P' },
        { "seconds", 1, 0, 's' }, { "warm", 1, 0, 'W' }, { "rate", 1, 0, 'r' }, { "shared-topic", 0, 0, 'S' },
        { "topics", 1, 0, 'T' }, { "fill", 1, 0, 'f' }, { "until", 1, 0, 'u' },
        { "tls", 0, 0, 'L' }, { 0 },
    };
    int name;
    while ((name = getopt_long(count, arguments, "", names, NULL)) != -1) {
        switch (name) {
        case 'h': options.host = optarg; break;
        case 'p': options.port = (int)number(optarg); break;
        case 't': options.topic = optarg; break;
        case 'g': options.group = optarg; break;
        case 'n': options.broker_name = optarg; break;
        case 'T': options.topic_count = (int)number(optarg); options.has_topics = true; break;
        case 'q': options.queue_count = (int)number(optarg); break;
        case 'c': options.connection_count = (int)number(optarg); break;
        case 'w': options.window = (int)number(optarg); break;
        case 'b': options.body_bytes = (int)number(optarg); break;
        case 'B': options.batch_count = (int)number(optarg); break;
        case 'P': options.pull_count = (int)number(optarg); break;
        case 's': options.seconds = number(optarg); break;
        case 'W': options.warm_seconds = number(optarg); break;
        case 'r': options.rate = number(optarg); break;
        case 'S': options.check_offsets = false; break;
        case 'L': options.is_tls = true; break;
        case 'u': options.until = (int64_t)number(optarg); break;
        case 'f':
            if (strcmp(optarg, "constant") == 0) options.fill = FILL_CONSTANT;
            else if (strcmp(optarg, "json") == 0) options.fill = FILL_JSON;
            else if (strcmp(optarg, "random") == 0) options.fill = FILL_RANDOM;
            else {
                fprintf(stderr, "load_generator: fill is constant, json or random\n");
                return 2;
            }
            break;
        case 'm':
            options.mode_name = optarg;
            if (strcmp(optarg, "send") == 0) options.mode = MODE_SEND;
            else if (strcmp(optarg, "batch") == 0) options.mode = MODE_BATCH;
            else if (strcmp(optarg, "pull") == 0) options.mode = MODE_PULL;
            else {
                fprintf(stderr, "load_generator: mode is send, batch or pull\n");
                return 2;
            }
            break;
        default: return 2;
        }
    }
    if (options.connection_count < 1 || options.connection_count > CONNECTIONS_MAX || options.window < 1
        || options.window > SLOTS_PER_CONNECTION || options.queue_count < 1 || options.queue_count > QUEUES_MAX
        || options.topic_count < 1 || options.topic_count > TOPICS_MAX || (options.has_topics && options.mode == MODE_PULL)
        || options.batch_count < 1 || options.batch_count > BATCH_MAX || options.body_bytes < 1 || options.seconds <= 0 || optind != count) {
        fprintf(stderr, "load_generator: a value is out of range\n");
        return 2;
    }
    place_count = options.topic_count * options.queue_count;
    queue_checks = must(calloc((size_t)place_count, sizeof *queue_checks));
    signal(SIGPIPE, SIG_IGN);
    if (options.is_tls) load_openssl();
    if (options.mode == MODE_BATCH) build_batch_body();
    if (options.fill != FILL_CONSTANT && options.mode != MODE_PULL) build_pool();
    int epoll = epoll_create1(0);
    if (epoll < 0) die("epoll");
    for (int i = 0; i < options.connection_count; i++) open_connection(epoll, &connections[i], i);
    run(epoll);
    report();
    return 0;
}
