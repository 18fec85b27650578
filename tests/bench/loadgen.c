/*
 * A load generator for any AMQP 0-9-1 broker, over TCP.
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
#include <time.h>
#include <unistd.h>

enum { FRAME_METHOD = 1, FRAME_HEADER = 2, FRAME_BODY = 3, FRAME_HEARTBEAT = 8, FRAME_END = 0xCE };
enum { CONNECTION = 10, CHANNEL = 20, EXCHANGE = 40, QUEUE = 50, BASIC = 60, CONFIRM = 85 };
enum { RECEIVE_BYTES = 512 * 1024, BLOCK_BYTES = 64 * 1024, FLUSH_BURST = 32 };

/* ---- options ---- */

static struct {
    const char *host, *user, *password, *vhost, *name, *cpu_of, *probe;
    int port, publishers, consumers, queues, fanout, body, persistent, window, ack_every, prefetch,
        flush, keep, durable;
    double rate, duration, warmup, patience;
    uint64_t count, in_flight, warmup_count;
} opt = {
    .host = "127.0.0.1",
    .user = "guest",
    .password = "guest",
    .vhost = "/",
    .name = "bench",
    .cpu_of = "",
    .port = 5672,
    .publishers = 1,
    .consumers = 1,
    .queues = 1,
    .body = 16,
    .durable = -1,
    .duration = 5,
    .patience = 30,
};

static const struct option long_options[] = {
    {"host", 1, 0, 'h'},       {"port", 1, 0, 'p'},      {"user", 1, 0, 'u'},
    {"password", 1, 0, 'w'},   {"vhost", 1, 0, 'v'},     {"name", 1, 0, 'n'},
    {"publishers", 1, 0, 'P'}, {"consumers", 1, 0, 'C'}, {"queues", 1, 0, 'Q'},
    {"fanout", 1, 0, 'F'},     {"body", 1, 0, 'b'},      {"persistent", 0, 0, 'D'},
    {"confirm", 1, 0, 'W'},    {"ack", 1, 0, 'A'},       {"prefetch", 1, 0, 'q'},
    {"flush", 0, 0, 'f'},      {"rate", 1, 0, 'r'},      {"duration", 1, 0, 'd'},
    {"count", 1, 0, 'c'},      {"warmup", 1, 0, 'm'},    {"in-flight", 1, 0, 'i'},
    {"cpu-of", 1, 0, 'o'},     {"keep", 0, 0, 'k'},      {"patience", 1, 0, 't'},
    {"durable", 1, 0, 'U'},    {"probe", 1, 0, 'B'},     {"help", 0, 0, 'H'},
    {"warmup-count", 1, 0, 'M'}, {0, 0, 0, 0}};

static const char usage[] =
    "usage: loadgen --port N [options]\n"
    "  --host A --user U --password P --vhost V   where and as whom (127.0.0.1, guest, guest, /)\n"
    "  --publishers N --consumers M               connections, one channel each (1, 1); consumers "
    "0 leaves a backlog,\n"
    "                                             publishers 0 drains --count messages from queues "
    "kept before\n"
    "  --queues Q                                 queues, dealt to publishers and consumers in "
    "turn (1)\n"
    "  --fanout F                                 instead: publish to a fanout exchange bound to F "
    "queues\n"
    "  --body BYTES --persistent                  size of each body (16); delivery mode 2 and "
    "durable queues\n"
    "  --durable 0|1                              queues durable or not, if it should differ from "
    "--persistent\n"
    "  --confirm W                                publisher confirms with at most W outstanding (0 "
    "= none)\n"
    "  --ack K --prefetch P                       acknowledge every K deliveries (0 = auto-ack)\n"
    "  --flush                                    one publish per write, as clients do that flush "
    "each publish\n"
    "  --rate R                                   publishes per second over all publishers (0 = as "
    "fast as possible)\n"
    "  --duration S | --count N                   length of the measured part (5 s)\n"
    "  --warmup S                                 seconds before it that are not measured (0)\n"
    "  --warmup-count N --probe FILE              or as many messages; report by how much the u64 in\n"
    "                                             FILE rose over the measured part\n"
    "  --in-flight N                              stop publishing while N messages are not yet "
    "delivered (0 = no limit)\n"
    "  --cpu-of PID,PID                           measure the CPU time of these processes over the "
    "measured part\n"
    "  --name PREFIX --keep                       name of the queues; leave them as they are "
    "before and after\n"
    "  --patience S                               give up when nothing arrives for so long (30)\n";

static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "loadgen: ");
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

static void *allocate(size_t size)
{
    void *memory = calloc(1, size ? size : 1);
    if (!memory)
        die("out of memory for %zu bytes", size);
    return memory;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- latency histogram: 64 steps per power of two, so every figure is within 1.6 % ---- */

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

/* ---- connections ---- */

struct connection {
    int fd, number, publisher, waiting_to_write;
    uint8_t *in;
    size_t in_start, in_end;
    uint8_t *out; /* small control frames: acks, fences */
    size_t out_start, out_end, out_size;
    uint32_t frame_max;

    /* publisher */
    uint8_t *block;
    size_t message_bytes, stamp_at, block_messages, block_start, block_end;
    uint64_t published, published_at_mark, confirmed, oldest_unconfirmed, ring_mask;
    uint8_t *ring_done;
    uint64_t *ring_stamp;

    /* consumer */
    int queue, in_message, first_frame;
    uint64_t body_left, body_size, delivery_tag, unacked, delivered;
    int redelivered, fenced;
    size_t skip;
    uint64_t *last_sequence;
};

struct seen {
    uint64_t *bits, words;
};

static struct connection **connections;
static int connection_count, epoll_fd, all_queues;
static struct seen *seen; /* [queue][publisher] */
static struct histogram delivery_latency, confirm_latency;
static uint64_t published, delivered, confirmed, nacked, returned, duplicates, disordered, corrupt,
    redeliveries, blocked;
static uint64_t deliveries_at_mark, first_delivery_ns;
static uint64_t turn_ns;

static void put_u16(uint8_t **p, unsigned v)
{
    *(*p)++ = (uint8_t)(v >> 8);
    *(*p)++ = (uint8_t)v;
}
static void put_u32(uint8_t **p, uint32_t v)
{
    v = htobe32(v);
    memcpy(*p, &v, 4);
    *p += 4;
}
static void put_u64(uint8_t **p, uint64_t v)
{
    v = htobe64(v);
    memcpy(*p, &v, 8);
    *p += 8;
}
static void put_short(uint8_t **p, const char *s)
{
    size_t n = strlen(s);
    *(*p)++ = (uint8_t)n;
    memcpy(*p, s, n);
    *p += n;
}
static inline unsigned get_u16(const uint8_t *p)
{
    return (unsigned)p[0] << 8 | p[1];
}
static inline uint32_t get_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return be32toh(v);
}
static inline uint64_t get_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return be64toh(v);
}

/* A method frame is written between frame_begin and frame_end; frame_end fills in the length. */
static uint8_t *frame_begin(uint8_t **p, int channel, int class_id, int method)
{
    uint8_t *start = *p;
    *(*p)++ = FRAME_METHOD;
    put_u16(p, (unsigned)channel);
    *p += 4;
    put_u16(p, (unsigned)class_id);
    put_u16(p, (unsigned)method);
    return start;
}
static void frame_end(uint8_t **p, uint8_t *start)
{
    uint32_t size = htobe32((uint32_t)(*p - start - 7));
    memcpy(start + 3, &size, 4);
    *(*p)++ = FRAME_END;
}

static void send_all(struct connection *c, const uint8_t *data, size_t size)
{
    while (size) {
        ssize_t n = send(c->fd, data, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            die("connection %d: the broker closed the connection while being written to: %s",
                c->number, strerror(errno));
        data += n;
        size -= (size_t)n;
    }
}

static void closed_by_broker(struct connection *c, const uint8_t *payload, uint32_t size)
{
    int text = size >= 7 ? payload[6] : 0;
    die("connection %d: the broker closed the %s: %u %.*s", c->number,
        get_u16(payload) == CONNECTION ? "connection" : "channel",
        size >= 6 ? get_u16(payload + 4) : 0, text, size >= 7 ? (const char *)payload + 7 : "");
}

/* Blocking, for set-up only: waits for the method class_id.method and returns its arguments. */
static const uint8_t *expect(struct connection *c, unsigned class_id, unsigned method)
{
    for (;;) {
        size_t have = c->in_end - c->in_start;
        const uint8_t *p = c->in + c->in_start;
        if (have >= 7 && have >= 8 + (size_t)get_u32(p + 3)) {
            uint32_t size = get_u32(p + 3);
            c->in_start += 8 + size;
            if (p[0] == FRAME_HEARTBEAT)
                continue;
            if (p[0] == FRAME_METHOD && get_u16(p + 7) == class_id && get_u16(p + 9) == method)
                return p + 11;
            if (p[0] == FRAME_METHOD && ((get_u16(p + 7) == CONNECTION && get_u16(p + 9) == 50) ||
                                         (get_u16(p + 7) == CHANNEL && get_u16(p + 9) == 40)))
                closed_by_broker(c, p + 7, size);
            die("connection %d: expected method %u.%u, got frame type %u, method %u.%u", c->number,
                class_id, method, p[0], get_u16(p + 7), get_u16(p + 9));
        }
        if (c->in_start) {
            memmove(c->in, c->in + c->in_start, have);
            c->in_start = 0;
            c->in_end = have;
        }
        ssize_t n = recv(c->fd, c->in + c->in_end, RECEIVE_BYTES - c->in_end, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            die("connection %d: the broker closed the connection during set-up (user, password, "
                "vhost?)",
                c->number);
        c->in_end += (size_t)n;
    }
}

static struct connection *open_connection(int number)
{
    struct connection *c = allocate(sizeof *c);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    uint8_t buffer[1024], *p = buffer, *start;
    int one = 1;

    c->number = number;
    c->in = allocate(RECEIVE_BYTES);
    c->out_size = 64 * 1024;
    c->out = allocate(c->out_size);
    if (inet_pton(AF_INET, opt.host, &address.sin_addr) != 1)
        die("--host %s is not an IPv4 address", opt.host);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0)
        die("cannot connect to %s:%d: %s", opt.host, opt.port, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);

    send_all(c, (const uint8_t *)"AMQP\0\0\x09\x01", 8);
    expect(c, CONNECTION, 10);
    start = frame_begin(&p, 0, CONNECTION, 11);
    put_u32(&p, 0); /* client properties: none */
    put_short(&p, "PLAIN");
    put_u32(&p, (uint32_t)(strlen(opt.user) + strlen(opt.password) + 2));
    *p++ = 0;
    p = (uint8_t *)stpcpy((char *)p, opt.user) + 1;
    p = (uint8_t *)stpcpy((char *)p, opt.password);
    put_short(&p, "en_US");
    frame_end(&p, start);
    send_all(c, buffer, (size_t)(p - buffer));

    const uint8_t *tune = expect(c, CONNECTION, 30);
    c->frame_max = get_u32(tune + 2);
    if (!c->frame_max || c->frame_max > 131072)
        c->frame_max = 131072;
    p = buffer;
    start = frame_begin(&p, 0, CONNECTION, 31);
    put_u16(&p, 1); /* channel_max */
    put_u32(&p, c->frame_max);
    put_u16(&p, 0); /* no heartbeats: the CPU measured is that of messages */
    frame_end(&p, start);
    start = frame_begin(&p, 0, CONNECTION, 40);
    put_short(&p, opt.vhost);
    put_short(&p, "");
    *p++ = 0;
    frame_end(&p, start);
    send_all(c, buffer, (size_t)(p - buffer));
    expect(c, CONNECTION, 41);
    p = buffer;
    start = frame_begin(&p, 1, CHANNEL, 10);
    put_short(&p, "");
    frame_end(&p, start);
    send_all(c, buffer, (size_t)(p - buffer));
    expect(c, CHANNEL, 11);
    return c;
}

static void close_connection(struct connection *c)
{
    uint8_t buffer[64], *p = buffer, *start = frame_begin(&p, 0, CONNECTION, 50);
    put_u16(&p, 200);
    put_short(&p, "done");
    put_u16(&p, 0);
    put_u16(&p, 0);
    frame_end(&p, start);
    fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) & ~O_NONBLOCK);
    send_all(c, buffer, (size_t)(p - buffer));
    for (;;) { /* whatever is still under way may be dropped: read to the end of the stream */
        ssize_t n = recv(c->fd, c->in, RECEIVE_BYTES, 0);
        if (n <= 0)
            break;
        if (n >= 12 && get_u16(c->in + n - 5) == CONNECTION && get_u16(c->in + n - 3) == 51)
            break;
    }
    close(c->fd);
}

static void queue_name(char *name, int queue)
{
    sprintf(name, "%.100s.%d", opt.name, queue);
}

static void declare(struct connection *c)
{
    uint8_t buffer[2048], *p, *start;
    char name[128], exchange[128];
    int durable = opt.durable >= 0 ? opt.durable : opt.persistent;

    sprintf(exchange, "%.100s.fanout", opt.name);
    if (opt.fanout) {
        p = buffer;
        start = frame_begin(&p, 1, EXCHANGE, 10);
        put_u16(&p, 0);
        put_short(&p, exchange);
        put_short(&p, "fanout");
        *p++ = durable ? 2 : 0;
        put_u32(&p, 0);
        frame_end(&p, start);
        send_all(c, buffer, (size_t)(p - buffer));
        expect(c, EXCHANGE, 11);
    }
    for (int i = 0; i < all_queues; i++) {
        queue_name(name, i);
        p = buffer;
        if (!opt.keep) {
            start = frame_begin(&p, 1, QUEUE, 40);
            put_u16(&p, 0);
            put_short(&p, name);
            *p++ = 0;
            frame_end(&p, start);
        }
        start = frame_begin(&p, 1, QUEUE, 10);
        put_u16(&p, 0);
        put_short(&p, name);
        *p++ = durable ? 2 : 0;
        put_u32(&p, 0);
        frame_end(&p, start);
        if (opt.fanout) {
            start = frame_begin(&p, 1, QUEUE, 20);
            put_u16(&p, 0);
            put_short(&p, name);
            put_short(&p, exchange);
            put_short(&p, "");
            *p++ = 0;
            put_u32(&p, 0);
            frame_end(&p, start);
        }
        send_all(c, buffer, (size_t)(p - buffer));
        if (!opt.keep)
            expect(c, QUEUE, 41);
        expect(c, QUEUE, 11);
        if (opt.fanout)
            expect(c, QUEUE, 21);
    }
}

static void delete_all(struct connection *c)
{
    uint8_t buffer[512], *p, *start;
    char name[128];
    for (int i = 0; i < all_queues; i++) {
        queue_name(name, i);
        p = buffer;
        start = frame_begin(&p, 1, QUEUE, 40);
        put_u16(&p, 0);
        put_short(&p, name);
        *p++ = 0;
        frame_end(&p, start);
        send_all(c, buffer, (size_t)(p - buffer));
        expect(c, QUEUE, 41);
    }
    if (opt.fanout) {
        p = buffer;
        start = frame_begin(&p, 1, EXCHANGE, 20);
        put_u16(&p, 0);
        sprintf(name, "%.100s.fanout", opt.name);
        put_short(&p, name);
        *p++ = 0;
        frame_end(&p, start);
        send_all(c, buffer, (size_t)(p - buffer));
        expect(c, EXCHANGE, 21);
    }
}

/* ---- publishing ---- */

static void encode_block(struct connection *c)
{
    size_t frames = (size_t)opt.body / (c->frame_max - 8) + 1;
    size_t room = 512 + (size_t)opt.body + frames * 8;
    uint8_t *message = allocate(room), *p = message, *start;
    char key[128], exchange[128];
    size_t left = (size_t)opt.body, first = 1;

    exchange[0] = 0;
    key[0] = 0;
    if (opt.fanout)
        sprintf(exchange, "%.100s.fanout", opt.name);
    else
        queue_name(key, c->number % opt.queues);
    start = frame_begin(&p, 1, BASIC, 40);
    put_u16(&p, 0);
    put_short(&p, exchange);
    put_short(&p, key);
    *p++ = 0;
    frame_end(&p, start);
    *p++ = FRAME_HEADER;
    put_u16(&p, 1);
    put_u32(&p, 15);
    put_u16(&p, BASIC);
    put_u16(&p, 0);
    put_u64(&p, (uint64_t)opt.body);
    put_u16(&p, 0x1000); /* delivery-mode alone */
    *p++ = opt.persistent ? 2 : 1;
    *p++ = FRAME_END;
    while (left) {
        size_t piece = left < c->frame_max - 8 ? left : c->frame_max - 8;
        *p++ = FRAME_BODY;
        put_u16(&p, 1);
        put_u32(&p, (uint32_t)piece);
        if (first)
            c->stamp_at = (size_t)(p - message);
        first = 0;
        for (size_t i = 0; i < piece; i++)
            *p++ = (uint8_t)(i * 7 + 13);
        *p++ = FRAME_END;
        left -= piece;
    }
    c->message_bytes = (size_t)(p - message);
    c->block_messages = opt.flush ? 1 : BLOCK_BYTES / c->message_bytes;
    if (!c->block_messages)
        c->block_messages = 1;
    c->block = allocate(c->block_messages * c->message_bytes);
    for (size_t i = 0; i < c->block_messages; i++)
        memcpy(c->block + i * c->message_bytes, message, c->message_bytes);
    free(message);
}

static void want_write(struct connection *c, int wanted)
{
    if (c->waiting_to_write == wanted)
        return;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
    c->waiting_to_write = wanted;
}

/* How many messages this publisher may send now, at most `most`. */
static uint64_t room(struct connection *c, uint64_t most)
{
    if (opt.window) {
        uint64_t outstanding = c->published - c->confirmed;
        uint64_t span = c->ring_mask + 1 - (c->published + 1 - c->oldest_unconfirmed);
        uint64_t free_slots =
            outstanding >= (uint64_t)opt.window ? 0 : (uint64_t)opt.window - outstanding;
        if (free_slots > span)
            free_slots = span;
        if (most > free_slots)
            most = free_slots;
    }
    if (opt.in_flight) {
        uint64_t copies = opt.fanout ? (uint64_t)opt.fanout : 1,
                 flying = published - delivered / copies;
        uint64_t free_slots = flying >= opt.in_flight ? 0 : opt.in_flight - flying;
        if (most > free_slots)
            most = free_slots;
    }
    return most;
}

static void patch(struct connection *c, uint64_t messages)
{
    uint64_t stamp = now_ns();
    for (uint64_t i = 0; i < messages; i++) {
        uint64_t sequence = c->published + i;
        if (opt.body >= 16) {
            uint64_t id = (uint64_t)c->number << 48 | sequence;
            uint8_t *at = c->block + i * c->message_bytes + c->stamp_at;
            memcpy(at, &id, 8);
            memcpy(at + 8, &stamp, 8);
        }
        if (opt.window) {
            c->ring_done[(sequence + 1) & c->ring_mask] = 0;
            c->ring_stamp[(sequence + 1) & c->ring_mask] = stamp;
        }
    }
    c->published += messages;
    published += messages;
    c->block_start = 0;
    c->block_end = messages * c->message_bytes;
}

/* Sends what is left of the block. Returns 1 when all of it is out. */
static int push_block(struct connection *c)
{
    while (c->block_start < c->block_end) {
        ssize_t n =
            send(c->fd, c->block + c->block_start, c->block_end - c->block_start, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EAGAIN) {
                want_write(c, 1);
                return 0;
            }
            if (errno == EINTR)
                continue;
            die("publisher %d: the connection broke: %s", c->number, strerror(errno));
        }
        c->block_start += (size_t)n;
    }
    return 1;
}

/* One turn of one publisher; `allowed` is what rate and count still permit. Returns how many
 * messages it began to send. */
static uint64_t publish_turn(struct connection *c, uint64_t allowed)
{
    uint64_t sent = 0, turns = opt.flush ? FLUSH_BURST : 1;
    if (c->waiting_to_write || !push_block(c))
        return 0;
    while (turns-- && sent < allowed) {
        uint64_t most = c->block_messages < allowed - sent ? c->block_messages : allowed - sent;
        uint64_t messages = room(c, most);
        if (!messages)
            break;
        patch(c, messages);
        sent += messages;
        if (!push_block(c))
            break;
    }
    return sent;
}

/* ---- receiving ---- */

static void confirm_one(struct connection *c, uint64_t tag)
{
    uint64_t slot = tag & c->ring_mask;
    if (tag < c->oldest_unconfirmed || tag > c->published || c->ring_done[slot]) {
        corrupt++; /* a confirm for what was not published or was confirmed before */
        return;
    }
    c->ring_done[slot] = 1;
    c->confirmed++;
    confirmed++;
    histogram_add(&confirm_latency, turn_ns - c->ring_stamp[slot]);
    while (c->oldest_unconfirmed <= c->published &&
           c->ring_done[c->oldest_unconfirmed & c->ring_mask])
        c->oldest_unconfirmed++;
}

static void confirm(struct connection *c, uint64_t tag, int multiple, int negative)
{
    uint64_t before = confirmed;
    if (!opt.window)
        die("publisher %d: a confirm although none was asked for", c->number);
    if (multiple) {
        uint64_t upto = tag ? tag : c->published;
        for (uint64_t t = c->oldest_unconfirmed; t <= upto && t <= c->published; t++)
            if (!c->ring_done[t & c->ring_mask])
                confirm_one(c, t);
    } else
        confirm_one(c, tag);
    if (negative)
        nacked += confirmed - before;
}

static void control_frame(struct connection *c, const uint8_t *bytes, size_t size)
{
    if (c->out_end + size > c->out_size) {
        c->out_size *= 2;
        c->out = realloc(c->out, c->out_size);
        if (!c->out)
            die("out of memory");
    }
    memcpy(c->out + c->out_end, bytes, size);
    c->out_end += size;
}

static void push_control(struct connection *c)
{
    while (c->out_start < c->out_end) {
        ssize_t n = send(c->fd, c->out + c->out_start, c->out_end - c->out_start, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EAGAIN) {
                want_write(c, 1);
                return;
            }
            if (errno == EINTR)
                continue;
            die("consumer %d: the connection broke: %s", c->number, strerror(errno));
        }
        c->out_start += (size_t)n;
    }
    c->out_start = c->out_end = 0;
}

static void acknowledge(struct connection *c)
{
    uint8_t frame[32], *p = frame, *start = frame_begin(&p, 1, BASIC, 80);
    put_u64(&p, c->delivery_tag);
    *p++ = opt.ack_every > 1; /* multiple */
    frame_end(&p, start);
    control_frame(c, frame, (size_t)(p - frame));
    c->unacked = 0;
}

static void note_sequence(struct connection *c, uint64_t id, uint64_t stamp)
{
    uint64_t publisher = id >> 48, sequence = id & 0xffffffffffffull;
    int publishers = opt.publishers ? opt.publishers : 1;
    if (publisher >= (uint64_t)publishers ||
        (opt.publishers && sequence >= connections[publisher]->published)) {
        corrupt++;
        return;
    }
    struct seen *s = &seen[c->queue * publishers + (int)publisher];
    if (sequence / 64 >= s->words) {
        uint64_t words = s->words ? s->words * 2 : 1 << 14;
        while (words <= sequence / 64)
            words *= 2;
        s->bits = realloc(s->bits, words * 8);
        if (!s->bits)
            die("out of memory");
        memset(s->bits + s->words, 0, (words - s->words) * 8);
        s->words = words;
    }
    uint64_t bit = 1ull << (sequence & 63);
    if (s->bits[sequence / 64] & bit)
        duplicates++;
    s->bits[sequence / 64] |= bit;
    if (sequence + 1 <= c->last_sequence[publisher] && !c->redelivered)
        disordered++;
    c->last_sequence[publisher] = sequence + 1;
    if (opt.publishers)
        histogram_add(&delivery_latency, turn_ns > stamp ? turn_ns - stamp : 0);
}

static void message_complete(struct connection *c)
{
    c->in_message = 0;
    c->delivered++;
    delivered++;
    redeliveries += (uint64_t)c->redelivered;
    if (!first_delivery_ns)
        first_delivery_ns = turn_ns;
    if (opt.ack_every && ++c->unacked >= (uint64_t)opt.ack_every)
        acknowledge(c);
}

static void method(struct connection *c, const uint8_t *payload, uint32_t size)
{
    unsigned class_id = get_u16(payload), number = get_u16(payload + 2);
    if (class_id == BASIC && number == 60) { /* deliver */
        const uint8_t *p = payload + 4;
        p += 1 + p[0];
        c->delivery_tag = get_u64(p);
        c->redelivered = p[8] & 1;
        c->in_message = 1;
        c->first_frame = 1;
    } else if (class_id == BASIC && (number == 80 || number == 120)) {
        confirm(c, get_u64(payload + 4), payload[12] & 1, number == 120);
    } else if (class_id == BASIC && number == 11) { /* qos-ok: the fence after the last acks */
        c->fenced = 1;
    } else if (class_id == BASIC && number == 50) {
        returned++;
        c->in_message = 2;
    } else if ((class_id == CONNECTION && number == 50) || (class_id == CHANNEL && number == 40)) {
        closed_by_broker(c, payload, size);
    } else if (class_id == CONNECTION && number == 60) {
        blocked++;
    } else if (class_id == CONNECTION && number == 61) {
        ;
    } else
        die("connection %d: method %u.%u was not expected", c->number, class_id, number);
}

/* Parses all that is in the buffer; a body frame that is not whole yet is consumed as it comes. */
static void parse(struct connection *c)
{
    uint8_t *p = c->in + c->in_start, *end = c->in + c->in_end;
    for (;;) {
        size_t have = (size_t)(end - p);
        if (c->skip) {
            size_t piece = have < c->skip ? have : c->skip;
            if (!piece)
                break;
            p += piece;
            c->skip -= piece;
            if (c->skip)
                break;
            if (p[-1] != FRAME_END)
                die("connection %d: a body frame does not end with 0xCE", c->number);
            if (!c->body_left) {
                if (c->in_message == 1)
                    message_complete(c);
                c->in_message = 0;
            }
            continue;
        }
        if (have < 7)
            break;
        uint32_t size = get_u32(p + 3);
        if (p[0] == FRAME_BODY) {
            size_t needed = c->first_frame && c->body_size >= 16 ? 7 + 16 : 7;
            if (have < needed)
                break;
            if (!c->in_message || size > c->body_left)
                die("connection %d: a body frame of %u bytes where %lu were left", c->number, size,
                    c->body_left);
            if (c->first_frame && c->in_message == 1 && c->body_size >= 16) {
                uint64_t id, stamp;
                if (size < 16)
                    die("connection %d: a first body frame of %u bytes", c->number, size);
                memcpy(&id, p + 7, 8);
                memcpy(&stamp, p + 15, 8);
                note_sequence(c, id, stamp);
            }
            c->first_frame = 0;
            c->body_left -= size;
            p += 7;
            c->skip = size + 1;
            continue;
        }
        if (have < 8 + (size_t)size)
            break;
        if (p[7 + size] != FRAME_END)
            die("connection %d: a frame of type %u does not end with 0xCE", c->number, p[0]);
        if (p[0] == FRAME_METHOD)
            method(c, p + 7, size);
        else if (p[0] == FRAME_HEADER) {
            c->body_size = c->body_left = get_u64(p + 11);
            c->first_frame = 1;
            if (c->body_size != (uint64_t)opt.body)
                corrupt++;
            if (!c->body_size) {
                if (c->in_message == 1)
                    message_complete(c);
                c->in_message = 0;
            }
        } else if (p[0] != FRAME_HEARTBEAT)
            die("connection %d: frame type %u", c->number, p[0]);
        p += 8 + size;
    }
    c->in_start = (size_t)(p - c->in);
    if (c->in_start == c->in_end)
        c->in_start = c->in_end = 0;
    else if (RECEIVE_BYTES - c->in_end < 192 * 1024) {
        memmove(c->in, p, (size_t)(end - p));
        c->in_start = 0;
        c->in_end = (size_t)(end - p);
    }
}

static void receive(struct connection *c)
{
    ssize_t n = recv(c->fd, c->in + c->in_end, RECEIVE_BYTES - c->in_end, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        die("connection %d: the broker closed the connection: %s", c->number,
            n ? strerror(errno) : "end of stream");
    c->in_end += (size_t)n;
    turn_ns = now_ns();
    parse(c);
    if (c->out_end)
        push_control(c);
}

/* ---- the run ---- */

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

int main(int argc, char **argv)
{
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (c) {
        case 'h':
            opt.host = optarg;
            break;
        case 'p':
            opt.port = atoi(optarg);
            break;
        case 'u':
            opt.user = optarg;
            break;
        case 'w':
            opt.password = optarg;
            break;
        case 'v':
            opt.vhost = optarg;
            break;
        case 'n':
            opt.name = optarg;
            break;
        case 'P':
            opt.publishers = atoi(optarg);
            break;
        case 'C':
            opt.consumers = atoi(optarg);
            break;
        case 'Q':
            opt.queues = atoi(optarg);
            break;
        case 'F':
            opt.fanout = atoi(optarg);
            break;
        case 'b':
            opt.body = atoi(optarg);
            break;
        case 'D':
            opt.persistent = 1;
            break;
        case 'U':
            opt.durable = atoi(optarg);
            break;
        case 'W':
            opt.window = atoi(optarg);
            break;
        case 'A':
            opt.ack_every = atoi(optarg);
            break;
        case 'q':
            opt.prefetch = atoi(optarg);
            break;
        case 'f':
            opt.flush = 1;
            break;
        case 'r':
            opt.rate = atof(optarg);
            break;
        case 'd':
            opt.duration = atof(optarg);
            break;
        case 'c':
            opt.count = strtoull(optarg, NULL, 10);
            break;
        case 'm':
            opt.warmup = atof(optarg);
            break;
        case 'i':
            opt.in_flight = strtoull(optarg, NULL, 10);
            break;
        case 'o':
            opt.cpu_of = optarg;
            break;
        case 'k':
            opt.keep = 1;
            break;
        case 'B':
            opt.probe = optarg;
            break;
        case 'M':
            opt.warmup_count = strtoull(optarg, NULL, 10);
            break;
        case 't':
            opt.patience = atof(optarg);
            break;
        default:
            fputs(usage, stderr);
            return c == 'H' ? 0 : 2;
        }
    }
    if (opt.publishers < 0 || opt.publishers > 1000 || opt.consumers < 0 || opt.consumers > 1000)
        die("at most 1000 publishers and 1000 consumers");
    if (opt.publishers + opt.consumers == 0 || opt.queues < 1 || opt.body < 0 || opt.window < 0 ||
        opt.window > 1 << 24)
        die("a count is out of range; --help shows the options");
    if (!opt.publishers && !opt.count)
        die("--publishers 0 drains a backlog and needs --count");
    if (opt.prefetch && opt.ack_every > opt.prefetch)
        die("--ack %d would wait for ever with --prefetch %d", opt.ack_every, opt.prefetch);
    all_queues = opt.fanout ? opt.fanout : opt.queues;
    if (opt.consumers && opt.consumers < all_queues)
        die("%d queues need at least as many consumers", all_queues);

    int publishers = opt.publishers ? opt.publishers : 1;
    struct connection *admin = open_connection(-1);
    declare(admin);
    epoll_fd = epoll_create1(0);
    connection_count = opt.publishers + opt.consumers;
    connections = allocate((size_t)connection_count * sizeof *connections);
    seen = allocate((size_t)(all_queues * publishers) * sizeof *seen);
    for (int i = 0; i < connection_count; i++) {
        struct connection *c = connections[i] = open_connection(i);
        uint8_t buffer[512], *p = buffer, *start;
        c->publisher = i < opt.publishers;
        if (c->publisher) {
            uint64_t slots = 64;
            encode_block(c);
            while (slots < (uint64_t)opt.window * 4)
                slots *= 2;
            c->ring_mask = slots - 1;
            c->ring_done = allocate(slots);
            c->ring_stamp = allocate(slots * 8);
            c->oldest_unconfirmed = 1;
            if (opt.window) {
                start = frame_begin(&p, 1, CONFIRM, 10);
                *p++ = 0;
                frame_end(&p, start);
                send_all(c, buffer, (size_t)(p - buffer));
                expect(c, CONFIRM, 11);
            }
        }
    }
    double base_cpu = cpu_seconds(), base_own = own_cpu_seconds();
    uint64_t begin = now_ns();
    for (int i = opt.publishers; i < connection_count; i++) {
        struct connection *c = connections[i];
        uint8_t buffer[512], *p = buffer, *start;
        char name[128];
        c->queue = (i - opt.publishers) % all_queues;
        c->last_sequence = allocate((size_t)publishers * 8);
        if (opt.prefetch) {
            start = frame_begin(&p, 1, BASIC, 10);
            put_u32(&p, 0);
            put_u16(&p, (unsigned)opt.prefetch);
            *p++ = 0;
            frame_end(&p, start);
            send_all(c, buffer, (size_t)(p - buffer));
            expect(c, BASIC, 11);
        }
        p = buffer;
        queue_name(name, c->queue);
        start = frame_begin(&p, 1, BASIC, 20);
        put_u16(&p, 0);
        put_short(&p, name);
        put_short(&p, "c");
        *p++ = opt.ack_every ? 0 : 2;
        put_u32(&p, 0);
        frame_end(&p, start);
        send_all(c, buffer, (size_t)(p - buffer));
        expect(c, BASIC, 21);
    }
    for (int i = 0; i < connection_count; i++) {
        struct connection *c = connections[i];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event) < 0)
            die("epoll: %s", strerror(errno));
    }
    turn_ns = now_ns();
    for (int i = opt.publishers; i < connection_count;
         i++) { /* deliveries that came with consume-ok */
        parse(connections[i]);
        push_control(connections[i]);
    }

    uint64_t start_ns = opt.publishers ? now_ns() : begin, mark_ns = 0, stop_ns = 0, progress = 0,
             progress_ns = start_ns;
    uint64_t published_at_mark = 0, confirmed_at_mark = 0;
    uint64_t copies = opt.fanout ? (uint64_t)opt.fanout : 1;
    uint64_t probe_at_mark = probe_value();
    double cpu_at_mark = base_cpu, own_at_mark = base_own;
    int publishing = opt.publishers > 0;
    if (!publishing) {
        mark_ns = begin;
        stop_ns = begin;
    }
    for (;;) {
        uint64_t t = now_ns();
        if (!mark_ns && t - start_ns >= (uint64_t)(opt.warmup * 1e9) &&
            published >= opt.warmup_count &&
            (!opt.consumers || delivered >= opt.warmup_count * copies)) {
            mark_ns = t;
            cpu_at_mark = cpu_seconds();
            probe_at_mark = probe_value();
            own_at_mark = own_cpu_seconds();
            published_at_mark = published;
            deliveries_at_mark = delivered;
            confirmed_at_mark = confirmed;
            memset(&delivery_latency, 0, sizeof delivery_latency);
            memset(&confirm_latency, 0, sizeof confirm_latency);
        }
        uint64_t allowed = publishing ? UINT64_MAX : 0;
        int64_t wait = 100000000;
        if (publishing && !mark_ns && opt.warmup_count)
            allowed = published >= opt.warmup_count ? 0 : opt.warmup_count - published;
        if (publishing && mark_ns) {
            if (opt.count) {
                uint64_t done = published - published_at_mark;
                allowed = done >= opt.count ? 0 : opt.count - done;
            } else if (t - mark_ns >= (uint64_t)(opt.duration * 1e9))
                allowed = 0;
            if (!allowed) {
                publishing = 0;
                stop_ns = t;
            }
        }
        if (publishing && opt.rate > 0) {
            double due = opt.rate * (double)(t - start_ns) / 1e9 + 1;
            uint64_t ahead = due > (double)published ? (uint64_t)(due - (double)published) : 0;
            if (ahead < allowed)
                allowed = ahead;
            if (!allowed)
                wait = (int64_t)(((double)published + 1 - due) / opt.rate * 1e9) + 1000;
        }
        if (allowed) {
            uint64_t sent = 0;
            for (int i = 0; i < opt.publishers && allowed > sent; i++)
                sent += publish_turn(connections[i], allowed - sent);
            int idle = 1; /* a publisher that can go on at once means: look for events, do not wait
                             for them */
            for (int i = 0; i < opt.publishers && idle; i++)
                idle = connections[i]->waiting_to_write || !room(connections[i], 1);
            if (!idle)
                wait = opt.rate > 0 ? 1000 : 0;
        }
        if (!publishing) { /* what a full socket held back still has to go out */
            uint64_t wanted = opt.publishers ? published * copies : opt.count;
            int flushed = 1;
            for (int i = 0; i < opt.publishers; i++)
                flushed &= connections[i]->block_start == connections[i]->block_end;
            if (flushed && (!opt.consumers || delivered >= wanted) &&
                (!opt.window || confirmed >= published))
                break;
        }
        turn(wait < 0 ? 0 : wait);
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
    uint64_t end_ns = now_ns(), probed = probe_value() - probe_at_mark;
    double seconds = (double)(end_ns - mark_ns) / 1e9;
    double cpu = cpu_seconds() - cpu_at_mark, own = own_cpu_seconds() - own_at_mark;
    if (!stop_ns)
        stop_ns = end_ns;

    uint64_t expected = opt.publishers ? published * copies : opt.count;
    uint64_t lost = opt.consumers && delivered < expected ? expected - delivered : 0;
    if (opt.body >= 16 && opt.consumers && opt.publishers) {
        uint64_t distinct = 0;
        for (int i = 0; i < all_queues * publishers; i++)
            for (uint64_t w = 0; w < seen[i].words; w++)
                distinct += (uint64_t)__builtin_popcountll(seen[i].bits[w]);
        lost = expected - distinct;
    }
    uint64_t messages =
        opt.consumers ? delivered - deliveries_at_mark : published - published_at_mark;
    int right = !lost && !duplicates && !disordered && !corrupt && !nacked && !returned &&
                delivered <= expected && (!opt.window || confirmed == published);
    printf("{\"right\":%s,\"messages\":%lu,\"seconds\":%.4f,\"publishing_seconds\":%.4f,\"rate\":%."
           "1f,\"published\":%lu,"
           "\"delivered\":%lu,\"confirmed\":%lu,\"confirm_rate\":%.1f,\"lost\":%lu,\"duplicates\":%"
           "lu,\"disordered\":%lu,"
           "\"corrupt\":%lu,\"nacked\":%lu,\"returned\":%lu,\"redelivered\":%lu,\"blocked\":%lu,",
           right ? "true" : "false", messages, seconds, (double)(stop_ns - mark_ns) / 1e9,
           (double)messages / seconds, published, delivered, confirmed,
           (double)(confirmed - confirmed_at_mark) / seconds, lost, duplicates, disordered, corrupt,
           nacked, returned, redeliveries, blocked);
    printf("\"latency_us\":{\"p50\":%.2f,\"p99\":%.2f,\"max\":%.2f},\"confirm_us\":{\"p50\":%.2f,"
           "\"p99\":%.2f,\"max\":%.2f},",
           histogram_us(&delivery_latency, 0.5), histogram_us(&delivery_latency, 0.99),
           (double)delivery_latency.max / 1000, histogram_us(&confirm_latency, 0.5),
           histogram_us(&confirm_latency, 0.99), (double)confirm_latency.max / 1000);
    printf("\"first_delivery_ms\":%.3f,\"cpu_seconds\":%.3f,\"cpu_us_per_message\":%.4f,"
           "\"generator_cpu_us_per_message\":%.4f,\"probe\":%lu}\n",
           first_delivery_ns ? (double)(first_delivery_ns - begin) / 1e6 : 0, cpu,
           messages ? cpu * 1e6 / (double)messages : 0,
           messages ? own * 1e6 / (double)messages : 0, probed);
    fflush(stdout);

    for (int i = 0; i < connection_count; i++)
        close_connection(connections[i]);
    if (!opt.keep)
        delete_all(admin);
    close_connection(admin);
    return right ? 0 : 1;
}
