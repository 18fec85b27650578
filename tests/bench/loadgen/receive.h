/* Receiving: confirms and deliveries, counted where recv() put them. */
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
        ssize_t n =
            transport_send(&c->way, c->out + c->out_start, c->out_end - c->out_start);
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

static void receive_once(struct connection *c)
{
    ssize_t n = transport_receive(&c->way, c->in + c->in_end, RECEIVE_BYTES - c->in_end);
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

/* The poll does not see what TLS or a WebSocket took from the socket ahead. */
static void receive(struct connection *c)
{
    do
        receive_once(c);
    while (transport_has_more(&c->way));
}

static void start_consumer(struct connection *c, int queue)
{
    uint8_t buffer[512], *p = buffer, *start;
    char name[128];

    c->queue = queue;
    if (!c->last_sequence)
        c->last_sequence = allocate((size_t)(opt.publishers ? opt.publishers : 1) * 8);
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
    queue_name(name, queue);
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
