/*
 * Answers every SEND_MESSAGE_V2 at once with success and the next offset of its queue, and stores nothing.
 *
 * In the place of a broker it shows what the machine, its scheduler and the load generator cost by themselves: the
 * floor under every latency that the same generator measures at a real broker on the same cores.
 *
 * usage: null_responder          prints the port that it listens on (127.0.0.1), serves until it is killed
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFER_SIZE = 1 << 20, ANSWER_MAX = 512, EVENTS_MAX = 64, QUEUES_MAX = 1024, FIXED = 8 };

typedef struct {
    int socket;
    size_t size;
    char bytes[BUFFER_SIZE];
} connection;

static int64_t next_offsets[QUEUES_MAX];

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint32_t get_int32(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static void put_int32(char *at, uint32_t value) {
    value = htonl(value);
    memcpy(at, &value, 4);
}

/* The number behind `mark` in the header, or -1. */
static int64_t number_after(const char *header, size_t size, const char *mark) {
    const char *found = memmem(header, size, mark, strlen(mark));
    return found ? strtoll(found + strlen(mark), NULL, 10) : -1;
}

static size_t answer(const char *header, size_t header_size, char *out) {
    int64_t opaque = number_after(header, header_size, "\"opaque\":");
    int64_t queue_id = number_after(header, header_size, "\"e\":\"");
    if (opaque < 0 || queue_id < 0 || queue_id >= QUEUES_MAX) {
        fprintf(stderr, "not a SEND_MESSAGE_V2 of the load generator\n");
        exit(1);
    }
    int length = snprintf(out + FIXED, ANSWER_MAX - FIXED,
        "{\"code\":0,\"extFields\":{\"msgId\":\"7F00000100002A9F0000000000000000\",\"queueId\":\"%" PRId64 "\","
        "\"queueOffset\":\"%" PRId64 "\"},\"flag\":1,\"language\":\"OTHER\",\"opaque\":%" PRId64 ","
        "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}",
        queue_id, next_offsets[queue_id]++, opaque);
    put_int32(out, (uint32_t)length + 4);
    put_int32(out + 4, (uint32_t)length);
    return (size_t)length + FIXED;
}

static void send_all(int socket, const char *bytes, size_t size) {
    while (size) {
        ssize_t sent = send(socket, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return; /* the generator has gone: the read that follows sees it */
        }
        if (sent > 0) {
            bytes += sent;
            size -= (size_t)sent;
        }
    }
}

/* Reads what has come and answers every whole frame; false when the peer has closed. */
static int serve(connection *c) {
    static char answers[BUFFER_SIZE];
    ssize_t received = recv(c->socket, c->bytes + c->size, BUFFER_SIZE - c->size, 0);
    if (received <= 0) {
        return received < 0 && errno == EINTR;
    }
    c->size += (size_t)received;
    size_t at = 0, answered = 0;
    while (c->size - at >= FIXED && c->size - at >= 4 + (size_t)get_int32(c->bytes + at)) {
        size_t header_size = get_int32(c->bytes + at + 4) & 0xFFFFFF;
        if (answered + ANSWER_MAX > sizeof answers) {
            send_all(c->socket, answers, answered);
            answered = 0;
        }
        answered += answer(c->bytes + at + FIXED, header_size, answers + answered);
        at += 4 + (size_t)get_int32(c->bytes + at);
    }
    send_all(c->socket, answers, answered);
    memmove(c->bytes, c->bytes + at, c->size - at);
    c->size -= at;
    return 1;
}

static void open_connection(int epoll, int listener) {
    connection *c = calloc(1, sizeof *c);
    int on = 1;
    if (!c || (c->socket = accept(listener, NULL, NULL)) < 0) {
        die("accept");
    }
    setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->socket, &event)) {
        die("epoll_ctl");
    }
}

int main(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t address_size = sizeof address;
    struct epoll_event event = { .events = EPOLLIN }, events[EVENTS_MAX];
    if (listener < 0 || epoll < 0 || bind(listener, (struct sockaddr *)&address, sizeof address)
        || listen(listener, EVENTS_MAX) || getsockname(listener, (struct sockaddr *)&address, &address_size)
        || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event)) {
        die("listen");
    }
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            connection *c = events[i].data.ptr;
            if (!c) {
                open_connection(epoll, listener);
            } else if (!serve(c)) {
                close(c->socket);
                free(c);
            }
        }
    }
}
