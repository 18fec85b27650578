/* The bare system calls of idle connections: accepts `count` of them on a port of loopback, then
   receives what comes and sends a heartbeat on each every `interval` seconds. Prints the CPU share
   of `seconds` behind the last one, in percent of a core.
   usage: idle port count interval seconds */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

enum { LOOKED_AT = 256, LONGEST_MS = 1000 };

static const char beat[] = "\x08\0\0\0\0\0\0\xce";

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void watch(int epoll, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
        exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    int count = atoi(argv[2]), there = 0, next = 0, one = 1;
    double interval = atof(argv[3]), measured = atof(argv[4]), begun = 0, used = 0;
    int *sockets = calloc((size_t)count, sizeof *sockets);
    double *due = calloc((size_t)count, sizeof *due);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), epoll = epoll_create1(0);
    struct sockaddr_in where = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)atoi(argv[1])),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!sockets || !due || bind(listener, (void *)&where, sizeof where) || listen(listener, 4096))
        return 1;
    watch(epoll, listener);
    for (;;) {
        double now = seconds_of(CLOCK_MONOTONIC);
        if (there == count && begun == 0) {
            begun = now;
            used = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        }
        if (begun > 0 && now - begun >= measured) {
            used = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - used;
            printf("%.3f\n", 100 * used / (now - begun));
            return 0;
        }
        /* They came one after the other, and so they are due. */
        while (there && due[next] <= now) {
            send(sockets[next], beat, 8, MSG_NOSIGNAL);
            due[next] += interval;
            next = (next + 1) % there;
        }
        int patience = LONGEST_MS;
        if (there && (due[next] - now) * 1000 + 1 < patience)
            patience = (int)((due[next] - now) * 1000) + 1;
        struct epoll_event events[LOOKED_AT];
        int ready = epoll_wait(epoll, events, LOOKED_AT, patience);
        for (int at = 0; at < ready; at++) {
            char data[4096];
            int fd = events[at].data.fd;
            if (fd != listener) {
                if (recv(fd, data, sizeof data, 0) == 0)
                    return 1;
                continue;
            }
            while (there < count && (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                due[there] = seconds_of(CLOCK_MONOTONIC) + interval;
                sockets[there++] = fd;
                watch(epoll, fd);
            }
        }
    }
}
