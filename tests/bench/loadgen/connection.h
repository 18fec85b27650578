/* Connections, their state, and what is done on them while they still block. */
enum { RECEIVE_BYTES = 512 * 1024, BLOCK_BYTES = 64 * 1024, FLUSH_BURST = 32 };

struct connection {
    struct transport way;
    int fd, number, publisher, waiting_to_write;
    uint8_t *in;
    size_t in_start, in_end;
    uint8_t *out; /* small control frames: acks, fences */
    size_t out_start, out_end, out_size;
    uint32_t frame_max;

    /* publisher */
    uint8_t *block;
    size_t message_bytes, stamp_at, id_at, block_messages, block_start, block_end;
    uint64_t published, confirmed, oldest_unconfirmed, ring_mask;
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
static int connection_count, epoll_fd;
static struct seen *seen; /* [queue][publisher] */
static struct histogram delivery_latency, confirm_latency;
static uint64_t published, delivered, confirmed, nacked, returned, duplicates, disordered, corrupt,
    redeliveries, blocked;
static uint64_t first_delivery_ns;
static uint64_t turn_ns;

static void *allocate(size_t size)
{
    void *memory = calloc(1, size ? size : 1);
    if (!memory)
        die("out of memory for %zu bytes", size);
    return memory;
}

static void send_all(struct connection *c, const uint8_t *data, size_t size)
{
    while (size) {
        ssize_t n = transport_send(&c->way, data, size);
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
        ssize_t n = transport_receive(&c->way, c->in + c->in_end, RECEIVE_BYTES - c->in_end);
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
    c->way.fd = c->fd;
    transport_open(&c->way);

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
    put_u16(&p, 2); /* channel_max: --operation channel opens a second one */
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
        ssize_t n = transport_receive(&c->way, c->in, RECEIVE_BYTES);
        if (n <= 0)
            break;
        if (n >= 12 && get_u16(c->in + n - 5) == CONNECTION && get_u16(c->in + n - 3) == 51)
            break;
    }
    transport_close(&c->way);
    free(c->in);
    free(c->out);
    free(c->last_sequence);
    free(c);
}

static void queue_name(char *name, int queue)
{
    sprintf(name, "%.100s.%d", opt.name, queue);
}

/* A field of a table that is a text; none for an empty one. */
static void put_argument(uint8_t **p, const char *name, const char *value)
{
    size_t length = strlen(value);

    if (!length || length > 1000)
        return;
    put_short(p, name);
    *(*p)++ = 'S';
    put_u32(p, (uint32_t)length);
    memcpy(*p, value, length);
    *p += length;
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
        uint8_t *table = p;
        put_u32(&p, 0);
        put_argument(&p, "x-confirm-on", opt.confirm_on);
        put_argument(&p, "x-queue-type", opt.type);
        put_argument(&p, "x-stream-index", opt.index);
        put_u32(&table, (uint32_t)(p - table - 4));
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
