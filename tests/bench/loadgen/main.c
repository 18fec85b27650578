/*
 * A load generator for any AMQP 0-9-1 broker, over TCP, TLS or WebSocket.
 *
 * One process, one thread, one epoll: N publisher connections and M consumer connections. Frames
 * are encoded once; a publish patches a sequence and a stamp into bytes that are already there, and
 * a delivery is read where recv() put it. Nothing is allocated per message, except that the bitmaps
 * of seen sequences double now and then.
 *
 * Every body of 16 bytes or more carries: publisher (u16) and sequence (u48), then a stamp (u64,
 * monotonic nanoseconds), both in the byte order of this machine; the rest is filler. A run is
 * right when every sequence that was published arrives in every queue it was routed to exactly
 * once, and in order unless flagged as redelivered.
 *
 * The result is one line of JSON on standard output. Exit status: 0 all counts right, 1 counts
 * wrong, 2 cannot run.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "options.h"
#include "frames.h"
#include "measure.h"
#include "transport.h"
#include "connection.h"
#include "publish.h"
#include "receive.h"
#include "daily.h"

/* Waits for events for at most `timeout_ns` and handles them. */
static void turn(int64_t timeout_ns)
{
    struct epoll_event events[64];
    struct timespec t = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
    int n = epoll_pwait2(epoll_fd, events, 64, &t, NULL);
    if (n < 0 && errno != EINTR)
        die("epoll: %s", strerror(errno));
    for (int i = 0; i < n; i++) {
        struct connection *c = events[i].data.ptr;
        if (events[i].events & EPOLLOUT) {
            want_write(c, 0);
            if (c->publisher)
                push_block(c);
            if (c->out_end)
                push_control(c);
        }
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            receive(c);
    }
}

static void fence_acks(void)
{
    uint8_t frame[32], *p = frame, *start = frame_begin(&p, 1, BASIC, 10);
    put_u32(&p, 0);
    put_u16(&p, (unsigned)opt.prefetch);
    *p++ = 0;
    frame_end(&p, start);
    for (int i = opt.publishers; i < connection_count; i++) {
        struct connection *c = connections[i];
        if (c->unacked)
            acknowledge(c);
        c->fenced = 0;
        control_frame(c, frame, (size_t)(p - frame));
        push_control(c);
    }
    uint64_t give_up = now_ns() + (uint64_t)(opt.patience * 1e9);
    for (int waiting = 1; waiting;) {
        waiting = 0;
        for (int i = opt.publishers; i < connection_count; i++)
            waiting += !connections[i]->fenced;
        if (waiting)
            turn(100000000);
        if (now_ns() > give_up)
            die("%d consumers got no qos-ok after their last acks", waiting);
    }
}

static struct connection *open_all(void)
{
    struct connection *admin = open_connection(-1);
    int publishers = opt.publishers ? opt.publishers : 1;

    declare(admin);
    epoll_fd = epoll_create1(0);
    connection_count = opt.publishers + opt.consumers;
    connections = allocate((size_t)connection_count * sizeof *connections);
    seen = allocate((size_t)(all_queues * publishers) * sizeof *seen);
    for (int i = 0; i < connection_count; i++) {
        connections[i] = open_connection(i);
        if (i < opt.publishers)
            start_publisher(connections[i]);
    }
    return admin;
}

static void start_consumers(void)
{
    for (int i = opt.publishers; i < connection_count; i++)
        start_consumer(connections[i], (i - opt.publishers) % all_queues);
    for (int i = 0; i < connection_count; i++) {
        struct connection *c = connections[i];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event) < 0)
            die("epoll: %s", strerror(errno));
    }
    turn_ns = now_ns();
    for (int i = opt.publishers; i < connection_count; i++) { /* what came with consume-ok */
        parse(connections[i]);
        push_control(connections[i]);
    }
}

/* ---- the measured part: from the mark at the end of the warm-up to the last acknowledgement ----
 */

struct moment {
    uint64_t ns, published, delivered, confirmed, probe;
    double cpu, own_cpu;
};

static struct moment moment_now(void)
{
    return (struct moment){now_ns(),      published,     delivered,        confirmed,
                           probe_value(), cpu_seconds(), own_cpu_seconds()};
}

static uint64_t copies(void)
{
    return opt.fanout ? (uint64_t)opt.fanout : 1;
}

static int warmed_up(uint64_t start_ns)
{
    return now_ns() - start_ns >= (uint64_t)(opt.warmup * 1e9) && published >= opt.warmup_count &&
           (!opt.warmup_count || !opt.consumers || delivered >= opt.warmup_count * copies());
}

/* How many messages count and duration still allow; 0 ends the publishing once the mark is set. */
static uint64_t left_to_publish(const struct moment *mark)
{
    if (!mark->ns) {
        if (!opt.warmup_count)
            return UINT64_MAX;
        return published >= opt.warmup_count ? 0 : opt.warmup_count - published;
    }
    if (opt.count) {
        uint64_t done = published - mark->published;
        return done >= opt.count ? 0 : opt.count - done;
    }
    return now_ns() - mark->ns >= (uint64_t)(opt.duration * 1e9) ? 0 : UINT64_MAX;
}

/* How many of `allowed` the rate permits now; *wait is how long until the next one is due. */
static uint64_t paced(uint64_t start_ns, uint64_t allowed, int64_t *wait)
{
    double due = opt.rate * (double)(now_ns() - start_ns) / 1e9 + 1;
    uint64_t ahead = due > (double)published ? (uint64_t)(due - (double)published) : 0;
    if (!ahead)
        *wait = (int64_t)(((double)published + 1 - due) / opt.rate * 1e9) + 1000;
    return ahead < allowed ? ahead : allowed;
}

/* Publishes once round all publishers. Returns whether one of them could go on at once. */
static int publish_round(uint64_t allowed)
{
    uint64_t sent = 0;
    for (int i = 0; i < opt.publishers && allowed > sent; i++)
        sent += publish_turn(connections[i], allowed - sent);
    for (int i = 0; i < opt.publishers; i++)
        if (!connections[i]->waiting_to_write && room(connections[i], 1))
            return 1;
    return 0;
}

/* Whether all that was published is out, delivered and confirmed. */
static int complete(void)
{
    uint64_t wanted = opt.publishers ? published * copies() : opt.count;
    for (int i = 0; i < opt.publishers; i++)
        if (connections[i]->block_start != connections[i]->block_end)
            return 0;
    return (!opt.consumers || delivered >= wanted) && (!opt.window || confirmed >= published);
}

/* Runs the whole load; returns the moment of the mark. *stop_ns is when publishing ended. */
static struct moment run(uint64_t start_ns, struct moment mark, uint64_t *stop_ns)
{
    uint64_t progress = 0, progress_ns = start_ns;
    int publishing = opt.publishers > 0;

    while (publishing || !complete()) {
        int64_t wait = 100000000;
        if (!mark.ns && warmed_up(start_ns)) {
            mark = moment_now();
            memset(&delivery_latency, 0, sizeof delivery_latency);
            memset(&confirm_latency, 0, sizeof confirm_latency);
        }
        uint64_t allowed = publishing ? left_to_publish(&mark) : 0;
        if (publishing && !allowed && mark.ns) {
            publishing = 0;
            *stop_ns = now_ns();
            continue;
        }
        if (allowed && opt.rate > 0)
            allowed = paced(start_ns, allowed, &wait);
        if (allowed && publish_round(allowed))
            wait = opt.rate > 0 ? 1000 : 0;
        turn(wait);
        if (published + delivered + confirmed != progress) {
            progress = published + delivered + confirmed;
            progress_ns = now_ns();
        } else if (now_ns() - progress_ns > (uint64_t)(opt.patience * 1e9)) {
            fprintf(stderr, "loadgen: nothing arrived for %.0f s\n", opt.patience);
            break;
        }
    }
    if (opt.ack_every)
        fence_acks();
    else if (opt.consumers) /* anything delivered twice comes now or never */
        turn(1000000);
    return mark;
}

static uint64_t count_lost(uint64_t expected)
{
    uint64_t distinct = 0;
    int publishers = opt.publishers ? opt.publishers : 1;
    if (!opt.consumers)
        return 0;
    if (opt.body < 16 || !opt.publishers) /* bodies that carry no sequence of this run */
        return delivered < expected ? expected - delivered : 0;
    for (int i = 0; i < all_queues * publishers; i++)
        for (uint64_t w = 0; w < seen[i].words; w++)
            distinct += (uint64_t)__builtin_popcountll(seen[i].bits[w]);
    return expected - distinct;
}

/* Prints the result as one line of JSON; returns whether every count is right. */
static int report(struct moment mark, struct moment end, uint64_t begin_ns, uint64_t stop_ns)
{
    uint64_t expected = opt.publishers ? published * copies() : opt.count;
    uint64_t lost = count_lost(expected);
    uint64_t messages =
        opt.consumers ? end.delivered - mark.delivered : end.published - mark.published;
    double seconds = (double)(end.ns - mark.ns) / 1e9;
    double per_message = messages ? 1e6 / (double)messages : 0;
    int right = !lost && !duplicates && !disordered && !corrupt && !nacked && !returned &&
                delivered <= expected && (!opt.window || confirmed == published);

    printf("{\"right\":%s,\"messages\":%lu,\"seconds\":%.4f,\"publishing_seconds\":%.4f,",
           right ? "true" : "false", messages, seconds, (double)(stop_ns - mark.ns) / 1e9);
    printf("\"rate\":%.1f,\"confirm_rate\":%.1f,", (double)messages / seconds,
           (double)(end.confirmed - mark.confirmed) / seconds);
    printf("\"published\":%lu,\"delivered\":%lu,\"confirmed\":%lu,\"lost\":%lu,", published,
           delivered, confirmed, lost);
    printf("\"duplicates\":%lu,\"disordered\":%lu,\"corrupt\":%lu,\"nacked\":%lu,", duplicates,
           disordered, corrupt, nacked);
    printf("\"returned\":%lu,\"redelivered\":%lu,\"blocked\":%lu,", returned, redeliveries,
           blocked);
    print_latency("latency_us", &delivery_latency);
    print_latency("confirm_us", &confirm_latency);
    printf("\"first_delivery_ms\":%.3f,\"probe\":%lu,",
           first_delivery_ns ? (double)(first_delivery_ns - begin_ns) / 1e6 : 0,
           end.probe - mark.probe);
    printf("\"cpu_seconds\":%.3f,\"cpu_us_per_message\":%.4f,", end.cpu - mark.cpu,
           (end.cpu - mark.cpu) * per_message);
    printf("\"generator_cpu_us_per_message\":%.4f}\n", (end.own_cpu - mark.own_cpu) * per_message);
    fflush(stdout);
    return right;
}

int main(int argc, char **argv)
{
    parse_options(argc, argv);
    if (opt.operation)
        return run_operation() ? 0 : 1;
    struct connection *admin = open_all();
    struct moment mark = moment_now();
    uint64_t begin_ns = mark.ns, stop_ns = mark.ns;

    start_consumers();
    if (opt.publishers)
        mark.ns = 0; /* not yet: it is set when the warm-up ends */
    mark = run(opt.publishers ? now_ns() : begin_ns, mark, &stop_ns);
    int right = report(mark, moment_now(), begin_ns, stop_ns);
    for (int i = 0; i < connection_count; i++)
        close_connection(connections[i]);
    if (!opt.keep)
        delete_all(admin);
    close_connection(admin);
    return right ? 0 : 1;
}
