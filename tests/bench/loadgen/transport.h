/* The way of bytes: plain TCP, TLS, or AMQP in binary messages of a WebSocket. */
#ifdef WITH_TLS
#include <openssl/err.h>
#include <openssl/ssl.h>
#endif

enum { WS_HEADER_MAX = 14, WS_BINARY = 0x82, WS_MASKED = 0x80, RAW_BYTES = 256 * 1024 };

struct transport {
    int fd;
#ifdef WITH_TLS
    SSL *tls;
#endif
    /* WebSocket, writing: the message that is under way, its length and how much of it is out. The
     * masking key is 0, so that the payload is sent from where it lies; the broker unmasks all the
     * same. */
    uint8_t header[WS_HEADER_MAX];
    size_t header_bytes, message_bytes, message_sent;
    /* WebSocket, reading: what came, and what is left of the frame that is being read. */
    uint8_t *raw;
    size_t raw_start, raw_end;
    uint64_t frame_left;
    int frame_is_data;
};

#ifdef WITH_TLS
/* As send and recv: -1 with EAGAIN where TLS has to wait. */
static ssize_t tls_result(struct transport *t, int n)
{
    if (n > 0)
        return n;
    int error = SSL_get_error(t->tls, n);
    errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
    return error == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

static void tls_open(struct transport *t)
{
    static SSL_CTX *context;
    if (!context) {
        context = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        SSL_CTX_set_read_ahead(context, 1);
    }
    t->tls = SSL_new(context);
    SSL_set_fd(t->tls, t->fd);
    if (SSL_connect(t->tls) != 1)
        die("the TLS handshake failed: %s", ERR_error_string(ERR_get_error(), NULL));
}
#endif

static ssize_t raw_receive(struct transport *t, uint8_t *data, size_t size)
{
#ifdef WITH_TLS
    if (t->tls)
        return tls_result(t, SSL_read(t->tls, data, (int)size));
#endif
    return recv(t->fd, data, size, 0);
}

/* Sends one message of `size` bytes. It counts as sent once it is out whole: until then -1 with
 * EAGAIN, and the next call has to bring the same bytes. */
static ssize_t ws_send(struct transport *t, const uint8_t *data, size_t size)
{
    if (!t->header_bytes) {
        uint8_t *p = t->header;
        *p++ = WS_BINARY;
        if (size < 126) {
            *p++ = WS_MASKED | (uint8_t)size;
        } else if (size < 65536) {
            *p++ = WS_MASKED | 126;
            put_u16(&p, (unsigned)size);
        } else {
            *p++ = WS_MASKED | 127;
            put_u64(&p, size);
        }
        put_u32(&p, 0);
        t->header_bytes = (size_t)(p - t->header);
        t->message_bytes = size;
        t->message_sent = 0;
    }
    while (t->message_sent < t->header_bytes + t->message_bytes) {
        struct iovec parts[2] = {{t->header, t->header_bytes},
                                 {(void *)(uintptr_t)data, t->message_bytes}};
        size_t skip = t->message_sent;
        int first = skip >= t->header_bytes;
        if (first)
            skip -= t->header_bytes;
        parts[first].iov_base = (uint8_t *)parts[first].iov_base + skip;
        parts[first].iov_len -= skip;
        struct msghdr message = {.msg_iov = parts + first, .msg_iovlen = (size_t)(2 - first)};
        ssize_t n = sendmsg(t->fd, &message, MSG_NOSIGNAL);
        if (n < 0)
            return n;
        t->message_sent += (size_t)n;
    }
    t->header_bytes = 0;
    return (ssize_t)t->message_bytes;
}

/* Takes the header of the next frame from what came. Returns 0 if it is not whole yet. */
static int ws_header(struct transport *t)
{
    const uint8_t *p = t->raw + t->raw_start;
    size_t have = t->raw_end - t->raw_start, needed = 2;
    if (have < 2)
        return 0;
    if (p[1] == 126)
        needed = 4;
    else if (p[1] == 127)
        needed = 10;
    if (have < needed)
        return 0;
    t->frame_left = needed == 2 ? p[1] : needed == 4 ? get_u16(p + 2) : get_u64(p + 2);
    t->frame_is_data = (p[0] & 15) <= 2; /* a ping needs no answer within the length of a run */
    t->raw_start += needed;
    return 1;
}

static ssize_t ws_receive(struct transport *t, uint8_t *data, size_t size)
{
    for (;;) {
        size_t done = 0;
        while (done < size && (t->frame_left || ws_header(t))) {
            size_t piece = t->raw_end - t->raw_start;
            if (piece > t->frame_left)
                piece = t->frame_left;
            if (t->frame_is_data && piece > size - done)
                piece = size - done;
            if (!piece)
                break;
            if (t->frame_is_data) {
                memcpy(data + done, t->raw + t->raw_start, piece);
                done += piece;
            }
            t->raw_start += piece;
            t->frame_left -= piece;
        }
        if (done)
            return (ssize_t)done;
        memmove(t->raw, t->raw + t->raw_start, t->raw_end - t->raw_start);
        t->raw_end -= t->raw_start;
        t->raw_start = 0;
        ssize_t n = raw_receive(t, t->raw + t->raw_end, RAW_BYTES - t->raw_end);
        if (n <= 0)
            return n;
        t->raw_end += (size_t)n;
    }
}

static void ws_open(struct transport *t)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
                                  "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                                  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                                  "Sec-WebSocket-Protocol: amqp\r\n\r\n";
    t->raw = calloc(1, RAW_BYTES + 1);
    if (!t->raw || send(t->fd, request, sizeof request - 1, MSG_NOSIGNAL) < 0)
        die("the WebSocket handshake could not be sent: %s", strerror(errno));
    for (;;) {
        ssize_t n = recv(t->fd, t->raw + t->raw_end, RAW_BYTES - t->raw_end, 0);
        if (n <= 0)
            die("the broker closed the connection in the WebSocket handshake");
        t->raw_end += (size_t)n;
        t->raw[t->raw_end] = 0;
        char *end = strstr((char *)t->raw, "\r\n\r\n");
        if (!end)
            continue;
        if (strncmp((char *)t->raw, "HTTP/1.1 101", 12))
            die("the broker refused the WebSocket: %.*s", (int)(end - (char *)t->raw), t->raw);
        t->raw_start = (size_t)(end + 4 - (char *)t->raw);
        return;
    }
}

static void transport_open(struct transport *t)
{
    if (opt.websocket)
        ws_open(t);
    if (opt.tls) {
#ifdef WITH_TLS
        tls_open(t);
#else
        die("--tls: this generator was built without OpenSSL (Debian: libssl-dev)");
#endif
    }
}

static ssize_t transport_send(struct transport *t, const uint8_t *data, size_t size)
{
#ifdef WITH_TLS
    if (t->tls)
        return tls_result(t, SSL_write(t->tls, data, (int)size));
#endif
    if (opt.websocket)
        return ws_send(t, data, size);
    return send(t->fd, data, size, MSG_NOSIGNAL);
}

static ssize_t transport_receive(struct transport *t, uint8_t *data, size_t size)
{
    return opt.websocket ? ws_receive(t, data, size) : raw_receive(t, data, size);
}

/* Whether bytes were taken from the socket that transport_receive has not returned yet. */
static int transport_has_more(struct transport *t)
{
#ifdef WITH_TLS
    if (t->tls && SSL_has_pending(t->tls))
        return 1;
#endif
    return t->raw_end > t->raw_start;
}

static void transport_close(struct transport *t)
{
#ifdef WITH_TLS
    if (t->tls)
        SSL_free(t->tls);
#endif
    free(t->raw);
    close(t->fd);
}
