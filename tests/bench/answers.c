/* The bare system calls of methods: accepts connections on a port of loopback and answers each
   method with bytes that say that it is done. Nothing is kept, checked or carried out.
   usage: answers port */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LOOKED_AT = 256, RECEIVED = 1 << 18, ANSWERED = 1 << 16, METHOD = 1, FRAME_END = 0xce };
enum { START_BYTES = 419 }; /* of the arguments of connection.start */

static uint8_t received[RECEIVED], answers[ANSWERED];

struct method {
    unsigned channel, class_id, id;
    const uint8_t *arguments;
};

static uint8_t *put(uint8_t *to, unsigned channel, unsigned class_id, unsigned id,
                    const void *arguments, size_t size)
{
    uint32_t length = htonl((uint32_t)size + 4);
    *to++ = METHOD;
    *to++ = (uint8_t)(channel >> 8);
    *to++ = (uint8_t)channel;
    memcpy(to, &length, 4);
    to += 4;
    *to++ = (uint8_t)(class_id >> 8);
    *to++ = (uint8_t)class_id;
    *to++ = (uint8_t)(id >> 8);
    *to++ = (uint8_t)id;
    memcpy(to, arguments, size);
    to[size] = FRAME_END;
    return to + size + 1;
}

static uint8_t *answer(uint8_t *to, const struct method *asked)
{
    const uint8_t *arguments = asked->arguments, *tag;
    unsigned class_id = asked->class_id, id = asked->id;
    switch (class_id << 16 | id) {
    case 10 << 16 | 11: /* connection.start-ok; tune has 2047 channels and frames of 128 KiB */
        return put(to, 0, 10, 30, "\x07\xff\0\2\0\0\0\0", 8);
    case 10 << 16 | 31: /* connection.tune-ok */
        return to;
    case 10 << 16 | 40: /* connection.open */
        return put(to, 0, 10, 41, "", 1);
    case 20 << 16 | 10: /* channel.open */
        return put(to, asked->channel, 20, 11, "\0\0\0\0", 4);
    case 50 << 16 | 10: /* queue.declare: a name, and two numbers */
        return put(to, asked->channel, 50, 11, "\1q\0\0\0\0\0\0\0\0", 10);
    case 50 << 16 | 40: /* queue.delete */
        return put(to, asked->channel, 50, 41, "\0\0\0\0", 4);
    case 60 << 16 | 20: /* basic.consume: the tag is behind two octets and the queue's name */
        tag = arguments + 3 + arguments[2];
        return put(to, asked->channel, 60, 21, tag, 1u + *tag);
    case 60 << 16 | 30: /* basic.cancel */
        return put(to, asked->channel, 60, 31, arguments, 1u + *arguments);
    default:
        return put(to, asked->channel, class_id, id + 1, "", 0);
    }
}

static void take(int fd)
{
    static const uint8_t start[START_BYTES] = {0, 9};
    ssize_t size = recv(fd, received, RECEIVED, MSG_DONTWAIT);
    if (size <= 0) {
        close(fd);
        return;
    }
    const uint8_t *p = received, *end = received + size;
    uint8_t *to = answers;
    int is_over = 0;
    if (size >= 8 && memcmp(p, "AMQP", 4) == 0) {
        to = put(to, 0, 10, 10, start, sizeof start);
        p += 8;
    }
    while (p + 12 <= end && to + 1024 < answers + ANSWERED) {
        uint32_t length;
        memcpy(&length, p + 3, 4);
        struct method asked = {(unsigned)(p[1] << 8 | p[2]), (unsigned)(p[7] << 8 | p[8]),
                               (unsigned)(p[9] << 8 | p[10]), p + 11};
        if (p[0] == METHOD) {
            to = answer(to, &asked);
            is_over = is_over || (asked.class_id == 10 && asked.id == 50);
        }
        p += ntohl(length) + 8;
    }
    if (to > answers)
        send(fd, answers, (size_t)(to - answers),
             MSG_DONTWAIT | MSG_NOSIGNAL | (is_over ? MSG_MORE : 0));
    if (is_over)
        shutdown(fd, SHUT_WR);
}

static void watch(int epoll, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
        exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    int one = 1, fd, epoll = epoll_create1(0);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in where = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)atoi(argv[1])),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (bind(listener, (void *)&where, sizeof where) || listen(listener, 4096))
        return 1;
    watch(epoll, listener);
    for (;;) {
        struct epoll_event events[LOOKED_AT];
        int ready = epoll_wait(epoll, events, LOOKED_AT, -1);
        for (int at = 0; at < ready; at++) {
            if (events[at].data.fd != listener) {
                take(events[at].data.fd);
                continue;
            }
            while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
                watch(epoll, fd);
        }
    }
}
