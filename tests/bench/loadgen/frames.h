/* AMQP 0-9-1 frames, put together and taken apart. */
enum { FRAME_METHOD = 1, FRAME_HEADER = 2, FRAME_BODY = 3, FRAME_HEARTBEAT = 8, FRAME_END = 0xCE };
enum { CONNECTION = 10, CHANNEL = 20, EXCHANGE = 40, QUEUE = 50, BASIC = 60, CONFIRM = 85 };

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
