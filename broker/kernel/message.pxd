from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t


# Whose confirm a message is part of (x-confirm-on).
cdef packed struct Origin:
    uint32_t boot                  # number of the broker's start
    uint32_t channel               # serial number of the channel in that start
    uint64_t tag                   # of its confirm


# A view of one message: pointers into a receive buffer, a tail or a read buffer. It owns nothing
# and lives for one call.
cdef struct Message:
    const uint8_t* exchange
    const uint8_t* routing_key
    const uint8_t* properties      # flags and list, as received (AMQP 0-9-1 section 4.2.6.1)
    const uint8_t* body            # of a shared one that is not read yet: NULL
    void* large                    # the LargeBody that holds `body`; NULL for nearly all
    const uint8_t* reference       # of a shared body (BODY_IS_REFERENCE): id and length, 20 bytes
    uint8_t exchange_length
    uint8_t routing_key_length
    uint8_t flags
    uint32_t properties_length
    uint32_t body_length
    int64_t timestamp              # ms of the broker's clock when it was published
    Origin origin                  # set where a publisher waits for its confirm


# Message.flags, as stored in a record.
cdef enum:
    BODY_IS_REFERENCE = 1          # the body lies in the vhost's body store, or will
    HAS_ORIGIN = 2                 # the record holds the message's origin
    PERSISTENT = 8
    EXPIRES = 16                   # the properties hold an expiration
    WAS_DELIVERED = 32             # in the queue that it was moved or copied from


# Property flags that make a message more than its route's: headers, reply-to, expiration, user-id.
cdef enum:
    SPECIAL_FLAGS = (1 << 13) | (1 << 9) | (1 << 8) | (1 << 4)


# Messages that go one way together, at most; their views lie on the stack.
cdef enum:
    RUN_MAX = 32


# Where a stored message lies and what settling it needs.
cdef struct Place:
    uint32_t segment
    uint32_t position
    uint32_t length                # bytes of the whole record
    uint32_t body_length           # bytes of the body, which may lie elsewhere
    uint32_t redelivered           # 0 or 1


cdef inline void set_parts(Message* message, bytes exchange, bytes routing_key, bytes properties,
                           bytes body) noexcept:
    """Points a message to these objects, which have to outlive it."""
    message.exchange = <const uint8_t*> <char*> exchange
    message.exchange_length = <uint8_t> len(exchange)
    message.routing_key = <const uint8_t*> <char*> routing_key
    message.routing_key_length = <uint8_t> len(routing_key)
    message.properties = <const uint8_t*> <char*> properties
    message.properties_length = <uint32_t> len(properties)
    message.body = <const uint8_t*> <char*> body
    message.large = NULL
    message.body_length = <uint32_t> len(body)
