/* What clients do besides messages, one operation at a time: --operation. */

/* Sends a method with its answer expected on channel 1. */
static void call(struct connection *c, uint8_t *buffer, uint8_t *p, unsigned class_id,
                 unsigned method)
{
    send_all(c, buffer, (size_t)(p - buffer));
    expect(c, class_id, method);
}

static void open_channel(struct connection *c, int number)
{
    uint8_t buffer[64], *p = buffer, *start = frame_begin(&p, number, CHANNEL, 10);
    put_short(&p, "");
    frame_end(&p, start);
    call(c, buffer, p, CHANNEL, 11);
}

static void close_channel(struct connection *c, int number)
{
    uint8_t buffer[64], *p = buffer, *start = frame_begin(&p, number, CHANNEL, 40);
    put_u16(&p, 200);
    put_short(&p, "");
    put_u32(&p, 0);
    frame_end(&p, start);
    call(c, buffer, p, CHANNEL, 41);
}

static void cancel(struct connection *c)
{
    uint8_t buffer[64], *p = buffer, *start = frame_begin(&p, 1, BASIC, 30);
    put_short(&p, "c");
    *p++ = 0;
    frame_end(&p, start);
    call(c, buffer, p, BASIC, 31);
}

static void bind_queue(struct connection *c, uint64_t number)
{
    uint8_t buffer[512], *p = buffer, *start;
    char name[128], key[32];
    queue_name(name, 0);
    sprintf(key, "k%lu", number);
    start = frame_begin(&p, 1, QUEUE, 20);
    put_u16(&p, 0);
    put_short(&p, name);
    put_short(&p, "amq.direct");
    put_short(&p, key);
    *p++ = 0;
    put_u32(&p, 0);
    frame_end(&p, start);
    call(c, buffer, p, QUEUE, 21);
}

static void declare_and_delete(struct connection *c)
{
    uint8_t buffer[512], *p = buffer, *start;
    char name[128];
    sprintf(name, "%.100s.made", opt.name);
    start = frame_begin(&p, 1, QUEUE, 10);
    put_u16(&p, 0);
    put_short(&p, name);
    *p++ = opt.durable > 0 ? 2 : 0;
    put_u32(&p, 0);
    frame_end(&p, start);
    call(c, buffer, p, QUEUE, 11);
    p = buffer;
    start = frame_begin(&p, 1, QUEUE, 40);
    put_u16(&p, 0);
    put_short(&p, name);
    *p++ = 0;
    frame_end(&p, start);
    call(c, buffer, p, QUEUE, 41);
}

static void operate(struct connection *c, uint64_t number)
{
    switch (opt.operation) {
    case OPEN_CONNECTION:
        close_connection(open_connection(0));
        break;
    case OPEN_CHANNEL:
        open_channel(c, 2);
        close_channel(c, 2);
        break;
    case CONSUME:
        start_consumer(c, 0);
        cancel(c);
        break;
    case BIND:
        bind_queue(c, number);
        break;
    case DECLARE:
        declare_and_delete(c);
        break;
    case NO_OPERATION:
        break;
    }
}

/* Repeats the operation for the warm-up and the duration, at --rate a second or as fast as it can,
   and prints one line of JSON. */
static int run_operation(void)
{
    struct connection *c = open_connection(0);
    declare(c);
    uint64_t start = now_ns(), mark = 0, done = 0, number = 0;
    double cpu = 0, own_cpu = 0;
    for (;;) {
        uint64_t before = now_ns();
        uint64_t due = opt.rate > 0 ? start + (uint64_t)((double)number / opt.rate * 1e9) : 0;
        if (before < due) {
            struct timespec wait = {(time_t)((due - before) / 1000000000),
                                    (long)((due - before) % 1000000000)};
            nanosleep(&wait, NULL);
            before = now_ns();
        }
        if (!mark && before - start >= (uint64_t)(opt.warmup * 1e9)) {
            mark = before;
            cpu = cpu_seconds();
            own_cpu = own_cpu_seconds();
        }
        if (mark && before - mark >= (uint64_t)(opt.duration * 1e9))
            break;
        operate(c, number++);
        if (mark) {
            histogram_add(&delivery_latency, now_ns() - before);
            done++;
        }
    }
    double seconds = (double)(now_ns() - mark) / 1e9, each = done ? 1e6 / (double)done : 0;
    printf("{\"right\":true,\"messages\":%lu,\"seconds\":%.4f,\"rate\":%.1f,", done, seconds,
           (double)done / seconds);
    print_latency("latency_us", &delivery_latency);
    print_latency("confirm_us", &confirm_latency);
    printf("\"cpu_us_per_message\":%.4f,", (cpu_seconds() - cpu) * each);
    printf("\"generator_cpu_us_per_message\":%.4f}\n", (own_cpu_seconds() - own_cpu) * each);
    if (!opt.keep)
        delete_all(c);
    close_connection(c);
    return 1;
}
