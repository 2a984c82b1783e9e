/* A load generator for proxies of RocketMQ's gRPC protocol, fast enough not to be what is measured: one thread, epoll,
 * HTTP/2 without TLS. Requests are protobuf templates with the numbers that change patched in; every answer's code is
 * checked. Header blocks are written as gRPC libraries write them: what repeats is in the dynamic table from the first
 * request of a connection on, only the request id is sent each time. Header blocks of answers are not read.
 *
 *   send      each connection is a producer that keeps `window` SendMessage requests of one message in flight
 *   receive   each connection is a simple consumer with `window` ReceiveMessage requests; what one brings is
 *             acknowledged by one AckMessage before the next. A receive's latency counts only when it brought messages
 *   clients   each connection is a consumer with its Telemetry stream, which sends a Heartbeat every `heartbeat`
 *             seconds; the first `polls` of them hold a long poll of `poll-seconds` each, and begin the next one after it
 *
 * Every connection opens its Telemetry stream and has its settings answered before the first second counts.
 * One JSON object on standard output. Exit status 0 unless it could not connect or was misused.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load_measures.h"

enum { FRAME_HEAD = 9, DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, PING = 6, GOAWAY = 7, WINDOW_UPDATE = 8 };
enum { FLAG_ACK = 1, END_STREAM = 1, END_HEADERS = 4, PADDED = 8 };
enum { INITIAL_WINDOW = 65535, OWN_WINDOW = 1 << 30, GIVE_BACK_BYTES = 1 << 26, FRAME_MAX = 16384 };
enum { CODE_OK = 20000, CODE_NOT_FOUND = 40401, CODES_MAX = 100000, CONNECTIONS_MAX = 60000 };
enum { READ_BYTES = 256 * 1024, DRAIN_S = 5, ID_CHARS = 34, CONNECT_S = 120, OPENING_MAX = 64 };
enum { NO_KIND, TELEMETRY, SEND, RECEIVE, ACK, HEARTBEAT, KIND_COUNT };
enum { HEADER_COUNT = 11, PATH_0 = HEADER_COUNT, FIELD_COUNT = HEADER_COUNT + KIND_COUNT, FIELD_REQUEST_ID = 10 };

typedef struct {
    char *bytes;
    size_t size, capacity;
} buffer;

typedef struct {
    uint32_t stream;
    int kind;
    int64_t started_ns;
    buffer body;
} call;

typedef struct {
    int descriptor;
    bool is_registered, is_closed, wants_write, polls;
    uint32_t next_stream;
    int in_flight; /* of the requests that are measured */
    int64_t send_window, received_bytes, heartbeat_ns;
    int inserted, inserted_at[FIELD_COUNT];
    call *calls;
    buffer in, out, waiting; /* waiting: whole requests that the peer's window has no room for */
    char client_id[64];
} connection;

static struct {
    const char *host, *topic, *group, *broker_name, *mode_name;
    int port, connection_count, window, body_bytes, batch, polls, calls;
    int mode;
    double seconds, warm_seconds, heartbeat_s, poll_s;
} options = {
    .host = "127.0.0.1", .topic = "Benchmark", .group = "BenchmarkGroup", .broker_name = "broker-a",
    .mode_name = "send", .port = 8081, .connection_count = 1, .window = 16, .body_bytes = 1024, .batch = 32,
    .mode = SEND, .seconds = 5, .heartbeat_s = 10, .poll_s = 15,
};

static const struct { const char *name, *value; } fields[HEADER_COUNT] = {
    { ":method", "POST" }, { ":scheme", "http" }, { ":authority", "127.0.0.1" }, { "content-type", "application/grpc" },
    { "te", "trailers" }, { "user-agent", "grpc-load-generator/1" }, { "x-mq-language", "JAVA" },
    { "x-mq-protocol", "v2" }, { "x-mq-client-version", "5.0.8" }, { "grpc-timeout", "30S" }, { "x-mq-request-id", "" },
};
static const char *const methods[KIND_COUNT] = { [TELEMETRY] = "Telemetry", [SEND] = "SendMessage",
    [RECEIVE] = "ReceiveMessage", [ACK] = "AckMessage", [HEARTBEAT] = "Heartbeat" };

static connection *connections;
static uint64_t codes[CODES_MAX], request_count, message_count, error_count, empty_count, heartbeat_count, closed_count;
static uint64_t message_number, registered_count, received_count;
static int64_t measure_from_ns, end_ns;
static bool is_running;
static buffer send_body;
static size_t send_id_at;
static char receive_bytes[READ_BYTES];

/* -- bytes ---------------------------------------------------------------------------------------------------------- */

static void add(buffer *to, const void *bytes, size_t size) {
    if (to->size + size > to->capacity) {
        to->capacity = (to->size + size) * 2 + 64;
        to->bytes = must(realloc(to->bytes, to->capacity));
    }
    memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

static void add_byte(buffer *to, unsigned value) {
    char byte = (char)value;
    add(to, &byte, 1);
}

static void add_varint(buffer *to, uint64_t value) {
    while (value >= 128) {
        add_byte(to, (unsigned)(value & 127) | 128);
        value >>= 7;
    }
    add_byte(to, (unsigned)value);
}

static void add_number(buffer *to, int field, uint64_t value) {
    add_varint(to, (uint64_t)field << 3);
    add_varint(to, value);
}

static void add_bytes(buffer *to, int field, const void *bytes, size_t size) {
    add_varint(to, (uint64_t)field << 3 | 2);
    add_varint(to, size);
    add(to, bytes, size);
}

static void add_text(buffer *to, int field, const char *text) { add_bytes(to, field, text, strlen(text)); }

static void add_message(buffer *to, int field, buffer *message) {
    add_bytes(to, field, message->bytes, message->size);
    free(message->bytes);
}

/* A Resource, a Duration or another message with one field. */
static void add_named(buffer *to, int field, const char *name) {
    buffer resource = { 0 };
    add_text(&resource, 2, name);
    add_message(to, field, &resource);
}

static void add_seconds(buffer *to, int field, double seconds) {
    buffer duration = { 0 };
    add_number(&duration, 1, (uint64_t)seconds);
    add_number(&duration, 2, (uint64_t)((seconds - (double)(uint64_t)seconds) * 1e9));
    add_message(to, field, &duration);
}

static uint32_t get_int32(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static uint64_t get_varint(const char **at, const char *end) {
    uint64_t value = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        unsigned char byte = (unsigned char)*(*at)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) break;
    }
    return value;
}

/* The next field of a message: its number; *at and *size are set to the bytes of one with bytes, *value to a number. */
static int next_field(const char **cursor, const char *end, const char **at, size_t *size, uint64_t *value) {
    if (*cursor >= end) return 0;
    uint64_t tag = get_varint(cursor, end);
    *at = NULL, *size = 0, *value = 0;
    switch (tag & 7) {
    case 0: *value = get_varint(cursor, end); break;
    case 1: *cursor += 8; break;
    case 5: *cursor += 4; break;
    default:
        *size = get_varint(cursor, end);
        *at = *cursor;
        if (*size > (size_t)(end - *cursor)) *size = (size_t)(end - *cursor);
        *cursor += *size;
    }
    return (int)(tag >> 3);
}

/* The bytes of a field, or NULL. */
static const char *find_field(const char *bytes, size_t size, int wanted, size_t *found_size, uint64_t *number) {
    const char *cursor = bytes, *end = bytes + size, *at;
    int field;
    while ((field = next_field(&cursor, end, &at, found_size, number)) != 0)
        if (field == wanted) return at != NULL ? at : bytes;
    return NULL;
}

/* -- requests ------------------------------------------------------------------------------------------------------- */

static void add_frame_head(buffer *to, size_t size, int type, int flags, uint32_t stream) {
    unsigned char head[FRAME_HEAD] = { (unsigned char)(size >> 16), (unsigned char)(size >> 8), (unsigned char)size,
        (unsigned char)type, (unsigned char)flags };
    uint32_t number = htonl(stream);
    memcpy(head + 5, &number, 4);
    add(to, head, sizeof head);
}

static void add_integer(buffer *to, unsigned pattern, unsigned prefix_max, unsigned value) {
    if (value < prefix_max) {
        add_byte(to, pattern | value);
        return;
    }
    add_byte(to, pattern | prefix_max);
    add_varint(to, value - prefix_max);
}

static void add_string(buffer *to, const char *text) {
    add_integer(to, 0, 127, (unsigned)strlen(text));
    add(to, text, strlen(text));
}

static void add_field(connection *to, buffer *block, int place, const char *name, const char *value) {
    if (to->inserted_at[place] != 0) {
        add_integer(block, 0x80, 127, (unsigned)(61 + to->inserted - to->inserted_at[place] + 1));
        return;
    }
    to->inserted_at[place] = ++to->inserted;
    add_byte(block, 0x40);
    add_string(block, name);
    add_string(block, value);
}

static void add_header_block(connection *from, buffer *block, int kind) {
    char path[128], id[40];
    snprintf(path, sizeof path, "/apache.rocketmq.v2.MessagingService/%s", methods[kind]);
    add_field(from, block, PATH_0 + kind, ":path", path); /* before every field whose name has no colon */
    for (int i = 0; i < FIELD_REQUEST_ID; i++)
        if (kind != TELEMETRY || strcmp(fields[i].name, "grpc-timeout") != 0)
            add_field(from, block, i, fields[i].name, fields[i].value);
    add_field(from, block, FIELD_REQUEST_ID, "x-mq-client-id", from->client_id);
    snprintf(id, sizeof id, "00000000-0000-0000-0000-%012" PRIx64, message_number++ & 0xFFFFFFFFFFFF);
    add_byte(block, 0x00);
    add_string(block, fields[FIELD_REQUEST_ID].name);
    add_string(block, id);
}

static bool write_out(connection *to, int epoll) {
    size_t done = 0;
    while (done < to->out.size) {
        ssize_t sent = send(to->descriptor, to->out.bytes + done, to->out.size - done, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno != EAGAIN) return false;
        if (sent < 0) break;
        done += (size_t)sent;
    }
    memmove(to->out.bytes, to->out.bytes + done, to->out.size - done);
    to->out.size -= done;
    bool wants_write = to->out.size > 0;
    if (wants_write != to->wants_write) {
        struct epoll_event event = { .events = EPOLLIN | (wants_write ? EPOLLOUT : 0u), .data.ptr = to };
        to->wants_write = wants_write;
        if (epoll_ctl(epoll, EPOLL_CTL_MOD, to->descriptor, &event) < 0) die("epoll_ctl");
    }
    return true;
}

/* Move whole requests on as far as the peer's window goes: each is its size of data, its size, its bytes. */
static void release(connection *of) {
    size_t position = 0, sizes[2];
    while (position < of->waiting.size) {
        memcpy(sizes, of->waiting.bytes + position, sizeof sizes);
        if ((int64_t)sizes[0] > of->send_window) break;
        of->send_window -= (int64_t)sizes[0];
        add(&of->out, of->waiting.bytes + position + sizeof sizes, sizes[1]);
        position += sizeof sizes + sizes[1];
    }
    memmove(of->waiting.bytes, of->waiting.bytes + position, of->waiting.size - position);
    of->waiting.size -= position;
}

static void start_call(connection *from, int kind, const buffer *message, bool ends) {
    while (from->calls[from->next_stream / 2 % (uint32_t)options.calls].kind != NO_KIND) from->next_stream += 2;
    call *made = &from->calls[from->next_stream / 2 % (uint32_t)options.calls];
    made->stream = from->next_stream;
    made->kind = kind;
    made->started_ns = now_ns();
    made->body.size = 0;
    from->next_stream += 2;
    static buffer block, request;
    block.size = request.size = 0;
    add_header_block(from, &block, kind);
    add_frame_head(&request, block.size, HEADERS, END_HEADERS, made->stream);
    add(&request, block.bytes, block.size);
    size_t size = message->size + 5;
    if (size > FRAME_MAX) {
        fprintf(stderr, "grpc_load_generator: a request does not fit a frame\n");
        exit(2);
    }
    unsigned char prefix[5] = { 0, 0, (unsigned char)(message->size >> 16), (unsigned char)(message->size >> 8),
        (unsigned char)message->size };
    add_frame_head(&request, size, DATA, ends ? END_STREAM : 0, made->stream);
    add(&request, prefix, sizeof prefix);
    add(&request, message->bytes, message->size);
    size_t sizes[2] = { size, request.size };
    add(&from->waiting, sizes, sizeof sizes);
    add(&from->waiting, request.bytes, request.size);
    release(from);
}

static void start_telemetry(connection *from) {
    buffer settings = { 0 }, more = { 0 }, agent = { 0 }, command = { 0 };
    bool is_producer = options.mode == SEND;
    add_number(&settings, 1, is_producer ? 1 : 3);
    add_seconds(&settings, 4, 3);
    if (is_producer) {
        add_named(&more, 1, options.topic);
    } else {
        buffer entry = { 0 }, expression = { 0 };
        add_named(&more, 1, options.group);
        add_named(&entry, 1, options.topic);
        add_number(&expression, 1, 1);
        add_text(&expression, 2, "*");
        add_message(&entry, 2, &expression);
        add_message(&more, 2, &entry);
    }
    add_message(&settings, is_producer ? 5 : 6, &more);
    add_number(&agent, 1, 2);
    add_text(&agent, 2, "5.0.8");
    add_message(&settings, 7, &agent);
    add_message(&command, 2, &settings);
    start_call(from, TELEMETRY, &command, false);
    free(command.bytes);
}

static void start_send(connection *from) {
    char id[ID_CHARS + 1];
    snprintf(id, sizeof id, "01%016" PRIX64 "%016" PRIX64, (uint64_t)getpid(), message_number);
    memcpy(send_body.bytes + send_id_at, id, ID_CHARS);
    from->in_flight++;
    start_call(from, SEND, &send_body, true);
}

static void start_receive(connection *from) {
    static buffer request;
    if (request.size == 0) {
        buffer queue = { 0 }, broker = { 0 }, expression = { 0 };
        add_named(&request, 1, options.group);
        add_named(&queue, 1, options.topic);
        add_number(&queue, 2, (uint64_t)-1);
        add_text(&broker, 1, options.broker_name);
        add_message(&queue, 4, &broker);
        add_message(&request, 2, &queue);
        add_number(&expression, 1, 1);
        add_text(&expression, 2, "*");
        add_message(&request, 3, &expression);
        add_number(&request, 4, (uint64_t)options.batch);
        add_seconds(&request, 5, 60);
        add_seconds(&request, 7, options.poll_s);
    }
    from->in_flight++;
    start_call(from, RECEIVE, &request, true);
}

static void start_heartbeat(connection *from) {
    buffer request = { 0 };
    add_named(&request, 1, options.group);
    add_number(&request, 2, 3);
    start_call(from, HEARTBEAT, &request, true);
    free(request.bytes);
}

static void make_send_body(void) {
    buffer message = { 0 }, system = { 0 }, time = { 0 };
    char *body = must(malloc((size_t)options.body_bytes)), id[ID_CHARS + 1];
    memset(body, 'x', (size_t)options.body_bytes);
    memset(id, '0', ID_CHARS);
    id[ID_CHARS] = 0;
    add_named(&message, 1, options.topic);
    add_text(&system, 3, id);
    add_number(&system, 5, 1);
    add_number(&system, 6, 1);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    add_number(&time, 1, (uint64_t)now.tv_sec);
    add_message(&system, 7, &time);
    add_text(&system, 8, "load-generator");
    add_message(&message, 3, &system);
    add_bytes(&message, 4, body, (size_t)options.body_bytes);
    add_message(&send_body, 1, &message);
    send_id_at = (size_t)((char *)memmem(send_body.bytes, send_body.size, id, ID_CHARS) - send_body.bytes);
}

/* -- answers -------------------------------------------------------------------------------------------------------- */

static bool is_measured(int64_t now) { return now >= measure_from_ns && now < end_ns; }

static int code_of(const char *answer, size_t size) {
    size_t status_size;
    uint64_t number = 0;
    const char *status = find_field(answer, size, 1, &status_size, &number);
    if (status == NULL || find_field(status, status_size, 1, &size, &number) == NULL) return 0;
    return number < CODES_MAX ? (int)number : 0;
}

/* What a receive brought, and its acknowledgement. Returns the code of its status. */
static int take_messages(connection *from, const buffer *body, int *count) {
    buffer ack = { 0 };
    int code = 0;
    *count = 0;
    add_named(&ack, 1, options.group);
    add_named(&ack, 2, options.topic);
    for (size_t position = 0; position + 5 <= body->size;) {
        size_t size = get_int32(body->bytes + position + 1), found, id_size, handle_size;
        uint64_t number;
        const char *answer = body->bytes + position + 5, *message, *system, *id, *handle;
        position += 5 + size;
        if (position > body->size) break;
        if (find_field(answer, size, 1, &found, &number) != NULL) code = code_of(answer, size);
        if ((message = find_field(answer, size, 2, &found, &number)) == NULL) continue;
        if ((system = find_field(message, found, 3, &found, &number)) == NULL) continue;
        id = find_field(system, found, 3, &id_size, &number);
        handle = find_field(system, found, 12, &handle_size, &number);
        if (id == NULL || handle == NULL) continue;
        buffer entry = { 0 };
        add_bytes(&entry, 1, id, id_size);
        add_bytes(&entry, 2, handle, handle_size);
        add_message(&ack, 3, &entry);
        ++*count;
    }
    if (*count > 0) {
        from->in_flight++;
        start_call(from, ACK, &ack, true);
    }
    free(ack.bytes);
    return code;
}

static void go_on(connection *with, int kind) {
    if (!is_running || now_ns() >= end_ns) return;
    if (kind == SEND) start_send(with);
    else if (options.mode != HEARTBEAT || with->polls) start_receive(with);
}

static void call_ended(connection *with, call *ended) {
    int64_t now = now_ns(), latency = now - ended->started_ns;
    int kind = ended->kind, count = 0, code = 0;
    ended->kind = NO_KIND;
    if (kind == TELEMETRY && !with->is_registered) {
        fprintf(stderr, "grpc_load_generator: a client's settings were refused\n");
        exit(1);
    }
    if (kind == TELEMETRY) {
        closed_count += is_running;
        return;
    }
    if (kind == RECEIVE) {
        static buffer body;
        body.size = 0;
        add(&body, ended->body.bytes, ended->body.size);
        code = take_messages(with, &body, &count);
        received_count += (uint64_t)count;
    } else if (ended->body.size >= 5) {
        code = code_of(ended->body.bytes + 5, ended->body.size - 5);
    }
    if (kind != HEARTBEAT) with->in_flight--;
    if (is_measured(now)) {
        if (kind == HEARTBEAT) heartbeat_count += code == CODE_OK;
        bool is_empty = kind == RECEIVE && code == CODE_NOT_FOUND;
        if (code != CODE_OK && !is_empty) {
            error_count++;
            codes[code]++;
        } else if (is_empty) {
            empty_count++;
        } else if (kind == SEND || kind == RECEIVE) {
            note_latency(latency);
            request_count++;
            message_count += kind == SEND ? 1 : (uint64_t)count;
        }
    }
    if (kind == SEND) go_on(with, SEND);
    else if (kind == ACK || (kind == RECEIVE && count == 0)) go_on(with, RECEIVE); /* what came is acknowledged first */
}

static call *find_call(connection *of, uint32_t stream) {
    call *found = &of->calls[stream / 2 % (uint32_t)options.calls];
    return found->kind != NO_KIND && found->stream == stream ? found : NULL;
}

static void take_frame(connection *from, int type, int flags, uint32_t stream, const char *payload, size_t size) {
    call *made = stream ? find_call(from, stream) : NULL;
    switch (type) {
    case DATA:
        from->received_bytes += (int64_t)size;
        if (flags & PADDED) {
            fprintf(stderr, "grpc_load_generator: padded frames are not read\n");
            exit(1);
        }
        if (made != NULL && made->kind == TELEMETRY) {
            if (!from->is_registered) registered_count++;
            from->is_registered = true;
        } else if (made != NULL) {
            add(&made->body, payload, size);
        }
        break;
    case SETTINGS:
        if (flags & FLAG_ACK) return;
        for (size_t i = 0; i + 6 <= size; i += 6)
            if (payload[i + 1] == 3 && get_int32(payload + i + 2) < (uint32_t)options.window + 2) {
                fprintf(stderr, "grpc_load_generator: the server allows %u streams\n", get_int32(payload + i + 2));
                exit(1);
            }
        add_frame_head(&from->out, 0, SETTINGS, FLAG_ACK, 0);
        return;
    case PING:
        if (flags & FLAG_ACK) return;
        add_frame_head(&from->out, 8, PING, FLAG_ACK, 0);
        add(&from->out, payload, 8);
        return;
    case WINDOW_UPDATE:
        if (stream == 0) {
            from->send_window += get_int32(payload) & 0x7FFFFFFF;
            release(from);
        }
        return;
    case RST_STREAM:
        if (made != NULL) {
            made->body.size = 0;
            call_ended(from, made);
        }
        return;
    default:
        break;
    }
    if ((type == DATA || type == HEADERS) && (flags & END_STREAM) && made != NULL) call_ended(from, made);
}

static void drop(connection *lost) {
    if (is_running) closed_count++;
    lost->is_closed = true;
    close(lost->descriptor);
}

static void take_received(connection *from, int epoll) {
    for (;;) {
        ssize_t size = recv(from->descriptor, receive_bytes, sizeof receive_bytes, 0);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0 && errno == EAGAIN) break;
        if (size <= 0) {
            drop(from);
            return;
        }
        add(&from->in, receive_bytes, (size_t)size);
        if ((size_t)size < sizeof receive_bytes) break;
    }
    size_t position = 0;
    while (from->in.size - position >= FRAME_HEAD) {
        const char *head = from->in.bytes + position;
        size_t size = get_int32(head) >> 8;
        if (from->in.size - position < FRAME_HEAD + size) break;
        take_frame(from, head[3], head[4], get_int32(head + 5) & 0x7FFFFFFF, head + FRAME_HEAD, size);
        position += FRAME_HEAD + size;
    }
    memmove(from->in.bytes, from->in.bytes + position, from->in.size - position);
    from->in.size -= position;
    if (from->in.size == 0 && options.mode == HEARTBEAT) {
        free(from->in.bytes);
        from->in = (buffer){ 0 };
    }
    if (from->received_bytes >= GIVE_BACK_BYTES) {
        uint32_t given = htonl((uint32_t)from->received_bytes);
        from->received_bytes = 0;
        add_frame_head(&from->out, 4, WINDOW_UPDATE, 0, 0);
        add(&from->out, &given, 4);
    }
    if (!write_out(from, epoll)) drop(from);
}

/* -- life ----------------------------------------------------------------------------------------------------------- */

static void open_connection(connection *made, int number, int epoll) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)options.port) };
    int yes = 1;
    if (inet_pton(AF_INET, options.host, &address.sin_addr) != 1) die("address");
    made->descriptor = socket(AF_INET, SOCK_STREAM, 0);
    if (made->descriptor < 0) die("socket");
    if (connect(made->descriptor, (struct sockaddr *)&address, sizeof address) < 0) die("connect");
    setsockopt(made->descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (fcntl(made->descriptor, F_SETFL, O_NONBLOCK) < 0) die("fcntl");
    made->next_stream = 1;
    made->send_window = INITIAL_WINDOW;
    made->calls = must(calloc((size_t)options.calls, sizeof *made->calls));
    made->polls = number < options.polls;
    snprintf(made->client_id, sizeof made->client_id, "load@%d@%d", (int)getpid(), number);
    static const unsigned char settings[12] = { 0, 2, 0, 0, 0, 0, 0, 4, OWN_WINDOW >> 24, 0, 0, 0 };
    uint32_t window = htonl(OWN_WINDOW);
    add(&made->out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    add_frame_head(&made->out, sizeof settings, SETTINGS, 0, 0);
    add(&made->out, settings, sizeof settings);
    add_frame_head(&made->out, 4, WINDOW_UPDATE, 0, 0);
    add(&made->out, &window, 4);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = made };
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, made->descriptor, &event) < 0) die("epoll_ctl");
    start_telemetry(made);
    if (!write_out(made, epoll)) drop(made);
}

static void poll_events(int epoll, int timeout_ms) {
    struct epoll_event events[256];
    int count = epoll_wait(epoll, events, 256, timeout_ms);
    for (int i = 0; i < count; i++) {
        connection *with = events[i].data.ptr;
        if (with->is_closed) continue;
        if ((events[i].events & EPOLLOUT) && !write_out(with, epoll)) drop(with);
        else if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) take_received(with, epoll);
    }
}

static void open_all(int epoll) {
    int64_t deadline = now_ns() + (int64_t)CONNECT_S * 1000000000;
    for (int opened = 0; registered_count < (uint64_t)options.connection_count;) {
        while (opened < options.connection_count && (uint64_t)opened < registered_count + OPENING_MAX) {
            open_connection(&connections[opened], opened, epoll);
            opened++;
        }
        poll_events(epoll, 10);
        if (now_ns() > deadline) {
            fprintf(stderr, "grpc_load_generator: %" PRIu64 " clients of %d got their settings\n", registered_count,
                options.connection_count);
            exit(1);
        }
    }
}

static void send_heartbeats(int epoll, int64_t now) {
    for (int i = 0; i < options.connection_count; i++) {
        connection *with = &connections[i];
        if (with->is_closed || with->heartbeat_ns > now) continue;
        with->heartbeat_ns += (int64_t)(options.heartbeat_s * 1e9);
        start_heartbeat(with);
        if (!write_out(with, epoll)) drop(with);
    }
}

static int total_in_flight(void) {
    int count = 0;
    for (int i = 0; i < options.connection_count; i++) count += connections[i].is_closed ? 0 : connections[i].in_flight;
    return count;
}

static void run(int epoll) {
    int64_t start = now_ns(), next_heartbeats = start;
    measure_from_ns = start + (int64_t)(options.warm_seconds * 1e9);
    end_ns = measure_from_ns + (int64_t)(options.seconds * 1e9);
    is_running = true;
    for (int i = 0; i < options.connection_count; i++) {
        connections[i].heartbeat_ns = start + (int64_t)(options.heartbeat_s * 1e9 * (i + 1) / options.connection_count);
        for (int k = 0; k < options.window; k++) go_on(&connections[i], options.mode == SEND ? SEND : RECEIVE);
        if (!write_out(&connections[i], epoll)) drop(&connections[i]);
    }
    int64_t now;
    while ((now = now_ns()) < end_ns) {
        poll_events(epoll, 10);
        if (options.mode == HEARTBEAT && now >= next_heartbeats) {
            send_heartbeats(epoll, now);
            next_heartbeats = now + 100000000;
        }
    }
    is_running = false;
    int64_t drained = now + (int64_t)DRAIN_S * 1000000000;
    while (options.mode != HEARTBEAT && now_ns() < drained && total_in_flight() > 0) poll_events(epoll, 10);
}

static void report(void) {
    int open = 0;
    for (int i = 0; i < options.connection_count; i++) open += !connections[i].is_closed;
    printf("{\"requests\":%" PRIu64 ",\"messages\":%" PRIu64 ",\"requests_per_s\":%.1f,\"messages_per_s\":%.1f,"
           "\"errors\":%" PRIu64 ",\"empty\":%" PRIu64 ",\"heartbeats\":%" PRIu64 ",\"received\":%" PRIu64 ",\"closed\":%" PRIu64
           ",\"open\":%d,\"unanswered\":%d,\"codes\":{",
        request_count, message_count, (double)request_count / options.seconds, (double)message_count / options.seconds,
        error_count, empty_count, heartbeat_count, received_count, closed_count, open, total_in_flight());
    const char *separator = "";
    for (int code = 0; code < CODES_MAX; code++)
        if (codes[code]) {
            printf("%s\"%d\":%" PRIu64, separator, code, codes[code]);
            separator = ",";
        }
    printf("},");
    print_latency();
    printf(",\"generator_cpu_s\":%.3f,\"seconds\":%.3f}\n", own_cpu_s(), options.seconds);
}

static double number(const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (*text == 0 || *end != 0 || value < 0) {
        fprintf(stderr, "grpc_load_generator: not a number: %s\n", text);
        exit(2);
    }
    return value;
}

int main(int count, char **arguments) {
    static const struct option names[] = { { "host", 1, 0, 'h' }, { "port", 1, 0, 'p' }, { "topic", 1, 0, 't' },
        { "group", 1, 0, 'g' }, { "broker-name", 1, 0, 'n' }, { "mode", 1, 0, 'm' }, { "connections", 1, 0, 'c' },
        { "window", 1, 0, 'w' }, { "body", 1, 0, 'b' }, { "batch", 1, 0, 'B' }, { "seconds", 1, 0, 's' },
        { "warm", 1, 0, 'W' }, { "polls", 1, 0, 'P' }, { "heartbeat", 1, 0, 'H' }, { "poll-seconds", 1, 0, 'l' }, { 0 } };
    int name;
    while ((name = getopt_long(count, arguments, "", names, NULL)) != -1) {
        switch (name) {
        case 'h': options.host = optarg; break;
        case 'p': options.port = (int)number(optarg); break;
        case 't': options.topic = optarg; break;
        case 'g': options.group = optarg; break;
        case 'n': options.broker_name = optarg; break;
        case 'c': options.connection_count = (int)number(optarg); break;
        case 'w': options.window = (int)number(optarg); break;
        case 'b': options.body_bytes = (int)number(optarg); break;
        case 'B': options.batch = (int)number(optarg); break;
        case 's': options.seconds = number(optarg); break;
        case 'W': options.warm_seconds = number(optarg); break;
        case 'P': options.polls = (int)number(optarg); break;
        case 'H': options.heartbeat_s = number(optarg); break;
        case 'l': options.poll_s = number(optarg); break;
        case 'm':
            options.mode_name = optarg;
            options.mode = strcmp(optarg, "send") == 0 ? SEND : strcmp(optarg, "receive") == 0 ? RECEIVE
                : strcmp(optarg, "clients") == 0 ? HEARTBEAT : NO_KIND;
            break;
        default: return 2;
        }
    }
    if (options.mode == NO_KIND || options.connection_count < 1 || options.connection_count > CONNECTIONS_MAX
        || options.window < 1 || options.window > 4096 || options.body_bytes < 1 || options.seconds <= 0
        || options.heartbeat_s <= 0 || options.batch < 1 || options.batch > 32 || optind != count) {
        fprintf(stderr, "grpc_load_generator: a value is out of range\n");
        return 2;
    }
    if (options.mode == HEARTBEAT) options.window = 1;
    for (options.calls = 8; options.calls < 4 * options.window; options.calls *= 2) continue;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    connections = must(calloc((size_t)options.connection_count, sizeof *connections));
    make_send_body();
    int epoll = epoll_create1(0);
    if (epoll < 0) die("epoll");
    open_all(epoll);
    run(epoll);
    report();
    return 0;
}
