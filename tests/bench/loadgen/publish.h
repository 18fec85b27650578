/* Publishing: blocks of encoded messages, patched and sent as far as windows allow. */
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
    put_u32(&p, opt.ids ? 15 + 17 : 15);
    put_u16(&p, BASIC);
    put_u16(&p, 0);
    put_u64(&p, (uint64_t)opt.body);
    put_u16(&p, opt.ids ? 0x1080 : 0x1000); /* delivery-mode, message-id */
    *p++ = opt.persistent ? 2 : 1;
    if (opt.ids) {
        c->id_at = (size_t)(p + 1 - message);
        put_short(&p, "0000000000000000");
    }
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
        if (opt.ids) {
            uint64_t id = (uint64_t)c->number << 48 | sequence;
            uint8_t *at = c->block + i * c->message_bytes + c->id_at;
            for (int digit = 15; digit >= 0; digit--, id >>= 4)
                at[digit] = (uint8_t)"0123456789abcdef"[id & 15];
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
        ssize_t n = transport_send(&c->way, c->block + c->block_start,
                                   c->block_end - c->block_start);
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

static void start_publisher(struct connection *c)
{
    uint8_t buffer[64], *p = buffer, *start;
    uint64_t slots = 64;

    c->publisher = 1;
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
