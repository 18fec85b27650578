class AMQPError extends Error {
    constructor(message, connection) {
        super(message);
        this.name = "AMQPError";
        this.connection = connection;
    }
}

class AMQPView extends DataView {
    getUint64(byteOffset, littleEndian) {
        const left = this.getUint32(byteOffset, littleEndian);
        const right = this.getUint32(byteOffset + 4, littleEndian);
        const combined = littleEndian ? left + 2 ** 32 * right : 2 ** 32 * left + right;
        if (!Number.isSafeInteger(combined)) {
            console.warn(combined, "exceeds MAX_SAFE_INTEGER. Precision may be lost");
        }
        return combined;
    }
    setUint64(byteOffset, value, littleEndian) {
        this.setBigUint64(byteOffset, BigInt(value), littleEndian);
    }
    getInt64(byteOffset, littleEndian) {
        return Number(this.getBigInt64(byteOffset, littleEndian));
    }
    setInt64(byteOffset, value, littleEndian) {
        this.setBigInt64(byteOffset, BigInt(value), littleEndian);
    }
    getShortString(byteOffset) {
        const len = this.getUint8(byteOffset);
        byteOffset += 1;
        if (typeof Buffer !== "undefined") {
            const text = Buffer.from(this.buffer, this.byteOffset + byteOffset, len).toString();
            return [text, len + 1];
        }
        else {
            const view = new Uint8Array(this.buffer, this.byteOffset + byteOffset, len);
            const text = new TextDecoder().decode(view);
            return [text, len + 1];
        }
    }
    setShortString(byteOffset, string) {
        if (typeof Buffer !== "undefined") {
            const len = Buffer.byteLength(string);
            if (len > 255)
                throw new Error(`Short string too long, ${len} bytes: ${string.substring(0, 255)}...`);
            this.setUint8(byteOffset, len);
            byteOffset += 1;
            Buffer.from(this.buffer, this.byteOffset + byteOffset, len).write(string);
            return len + 1;
        }
        else {
            const utf8 = new TextEncoder().encode(string);
            const len = utf8.byteLength;
            if (len > 255)
                throw new Error(`Short string too long, ${len} bytes: ${string.substring(0, 255)}...`);
            this.setUint8(byteOffset, len);
            byteOffset += 1;
            const view = new Uint8Array(this.buffer, this.byteOffset + byteOffset);
            view.set(utf8);
            return len + 1;
        }
    }
    getLongString(byteOffset, littleEndian) {
        const len = this.getUint32(byteOffset, littleEndian);
        byteOffset += 4;
        if (typeof Buffer !== "undefined") {
            const text = Buffer.from(this.buffer, this.byteOffset + byteOffset, len).toString();
            return [text, len + 4];
        }
        else {
            const view = new Uint8Array(this.buffer, this.byteOffset + byteOffset, len);
            const text = new TextDecoder().decode(view);
            return [text, len + 4];
        }
    }
    setLongString(byteOffset, string, littleEndian) {
        if (typeof Buffer !== "undefined") {
            const len = Buffer.byteLength(string);
            this.setUint32(byteOffset, len, littleEndian);
            byteOffset += 4;
            Buffer.from(this.buffer, this.byteOffset + byteOffset, len).write(string);
            return len + 4;
        }
        else {
            const utf8 = new TextEncoder().encode(string);
            const len = utf8.byteLength;
            this.setUint32(byteOffset, len, littleEndian);
            byteOffset += 4;
            const view = new Uint8Array(this.buffer, this.byteOffset + byteOffset);
            view.set(utf8);
            return len + 4;
        }
    }
    getProperties(byteOffset, littleEndian) {
        let j = byteOffset;
        const flags = this.getUint16(j, littleEndian);
        j += 2;
        const props = {};
        if ((flags & 0x8000) > 0) {
            const [contentType, len] = this.getShortString(j);
            j += len;
            props.contentType = contentType;
        }
        if ((flags & 0x4000) > 0) {
            const [contentEncoding, len] = this.getShortString(j);
            j += len;
            props.contentEncoding = contentEncoding;
        }
        if ((flags & 0x2000) > 0) {
            const [headers, len] = this.getTable(j, littleEndian);
            j += len;
            props.headers = headers;
        }
        if ((flags & 0x1000) > 0) {
            props.deliveryMode = this.getUint8(j);
            j += 1;
        }
        if ((flags & 0x0800) > 0) {
            props.priority = this.getUint8(j);
            j += 1;
        }
        if ((flags & 0x0400) > 0) {
            const [correlationId, len] = this.getShortString(j);
            j += len;
            props.correlationId = correlationId;
        }
        if ((flags & 0x0200) > 0) {
            const [replyTo, len] = this.getShortString(j);
            j += len;
            props.replyTo = replyTo;
        }
        if ((flags & 0x0100) > 0) {
            const [expiration, len] = this.getShortString(j);
            j += len;
            props.expiration = expiration;
        }
        if ((flags & 0x0080) > 0) {
            const [messageId, len] = this.getShortString(j);
            j += len;
            props.messageId = messageId;
        }
        if ((flags & 0x0040) > 0) {
            props.timestamp = new Date(this.getInt64(j, littleEndian) * 1000);
            j += 8;
        }
        if ((flags & 0x0020) > 0) {
            const [type, len] = this.getShortString(j);
            j += len;
            props.type = type;
        }
        if ((flags & 0x0010) > 0) {
            const [userId, len] = this.getShortString(j);
            j += len;
            props.userId = userId;
        }
        if ((flags & 0x0008) > 0) {
            const [appId, len] = this.getShortString(j);
            j += len;
            props.appId = appId;
        }
        const len = j - byteOffset;
        return [props, len];
    }
    setProperties(byteOffset, properties, littleEndian) {
        let j = byteOffset;
        let flags = 0;
        if (properties.contentType)
            flags = flags | 0x8000;
        if (properties.contentEncoding)
            flags = flags | 0x4000;
        if (properties.headers)
            flags = flags | 0x2000;
        if (properties.deliveryMode)
            flags = flags | 0x1000;
        if (properties.priority)
            flags = flags | 0x0800;
        if (properties.correlationId)
            flags = flags | 0x0400;
        if (properties.replyTo)
            flags = flags | 0x0200;
        if (properties.expiration)
            flags = flags | 0x0100;
        if (properties.messageId)
            flags = flags | 0x0080;
        if (properties.timestamp)
            flags = flags | 0x0040;
        if (properties.type)
            flags = flags | 0x0020;
        if (properties.userId)
            flags = flags | 0x0010;
        if (properties.appId)
            flags = flags | 0x0008;
        this.setUint16(j, flags, littleEndian);
        j += 2;
        if (properties.contentType) {
            j += this.setShortString(j, properties.contentType);
        }
        if (properties.contentEncoding) {
            j += this.setShortString(j, properties.contentEncoding);
        }
        if (properties.headers) {
            j += this.setTable(j, properties.headers);
        }
        if (properties.deliveryMode) {
            this.setUint8(j, properties.deliveryMode);
            j += 1;
        }
        if (properties.priority) {
            this.setUint8(j, properties.priority);
            j += 1;
        }
        if (properties.correlationId) {
            j += this.setShortString(j, properties.correlationId);
        }
        if (properties.replyTo) {
            j += this.setShortString(j, properties.replyTo);
        }
        if (properties.expiration) {
            j += this.setShortString(j, properties.expiration);
        }
        if (properties.messageId) {
            j += this.setShortString(j, properties.messageId);
        }
        if (properties.timestamp) {
            const unixEpoch = Math.floor(Number(properties.timestamp) / 1000);
            this.setInt64(j, unixEpoch, littleEndian);
            j += 8;
        }
        if (properties.type) {
            j += this.setShortString(j, properties.type);
        }
        if (properties.userId) {
            j += this.setShortString(j, properties.userId);
        }
        if (properties.appId) {
            j += this.setShortString(j, properties.appId);
        }
        const len = j - byteOffset;
        return len;
    }
    getTable(byteOffset, littleEndian) {
        const table = {};
        let i = byteOffset;
        const len = this.getUint32(byteOffset, littleEndian);
        i += 4;
        for (; i < byteOffset + 4 + len;) {
            const [k, strLen] = this.getShortString(i);
            i += strLen;
            const [v, vLen] = this.getField(i, littleEndian);
            i += vLen;
            table[k] = v;
        }
        return [table, len + 4];
    }
    setTable(byteOffset, table, littleEndian) {
        let i = byteOffset + 4;
        for (const [key, value] of Object.entries(table)) {
            if (value === undefined)
                continue;
            i += this.setShortString(i, key);
            i += this.setField(i, value, littleEndian);
        }
        this.setUint32(byteOffset, i - byteOffset - 4, littleEndian);
        return i - byteOffset;
    }
    getField(byteOffset, littleEndian) {
        let i = byteOffset;
        const k = this.getUint8(i);
        i += 1;
        const type = String.fromCharCode(k);
        let v;
        let len;
        switch (type) {
            case "t":
                v = this.getUint8(i) === 1;
                i += 1;
                break;
            case "b":
                v = this.getInt8(i);
                i += 1;
                break;
            case "B":
                v = this.getUint8(i);
                i += 1;
                break;
            case "s":
                v = this.getInt16(i, littleEndian);
                i += 2;
                break;
            case "u":
                v = this.getUint16(i, littleEndian);
                i += 2;
                break;
            case "I":
                v = this.getInt32(i, littleEndian);
                i += 4;
                break;
            case "i":
                v = this.getUint32(i, littleEndian);
                i += 4;
                break;
            case "l":
                v = this.getInt64(i, littleEndian);
                i += 8;
                break;
            case "f":
                v = this.getFloat32(i, littleEndian);
                i += 4;
                break;
            case "d":
                v = this.getFloat64(i, littleEndian);
                i += 8;
                break;
            case "S":
                [v, len] = this.getLongString(i, littleEndian);
                i += len;
                break;
            case "F":
                [v, len] = this.getTable(i, littleEndian);
                i += len;
                break;
            case "A":
                [v, len] = this.getArray(i, littleEndian);
                i += len;
                break;
            case "x":
                [v, len] = this.getByteArray(i, littleEndian);
                i += len;
                break;
            case "T":
                v = new Date(this.getInt64(i, littleEndian) * 1000);
                i += 8;
                break;
            case "V":
                v = null;
                break;
            case "D": {
                const scale = this.getUint8(i);
                i += 1;
                const value = this.getUint32(i, littleEndian);
                i += 4;
                v = value / 10 ** scale;
                break;
            }
            default:
                throw new Error(`Field type '${k}' not supported`);
        }
        return [v, i - byteOffset];
    }
    setField(byteOffset, field, littleEndian) {
        let i = byteOffset;
        switch (typeof field) {
            case "string":
                this.setUint8(i, "S".charCodeAt(0));
                i += 1;
                i += this.setLongString(i, field, littleEndian);
                break;
            case "boolean":
                this.setUint8(i, "t".charCodeAt(0));
                i += 1;
                this.setUint8(i, field ? 1 : 0);
                i += 1;
                break;
            case "bigint":
                this.setUint8(i, "l".charCodeAt(0));
                i += 1;
                this.setBigInt64(i, field, littleEndian);
                i += 8;
                break;
            case "number":
                if (Number.isInteger(field)) {
                    if (-(2 ** 32) < field && field < 2 ** 32) {
                        this.setUint8(i, "I".charCodeAt(0));
                        i += 1;
                        this.setInt32(i, field, littleEndian);
                        i += 4;
                    }
                    else {
                        this.setUint8(i, "l".charCodeAt(0));
                        i += 1;
                        this.setInt64(i, field, littleEndian);
                        i += 8;
                    }
                }
                else {
                    if (-(2 ** 32) < field && field < 2 ** 32) {
                        this.setUint8(i, "f".charCodeAt(0));
                        i += 1;
                        this.setFloat32(i, field, littleEndian);
                        i += 4;
                    }
                    else {
                        this.setUint8(i, "d".charCodeAt(0));
                        i += 1;
                        this.setFloat64(i, field, littleEndian);
                        i += 8;
                    }
                }
                break;
            case "undefined":
                this.setUint8(i, "V".charCodeAt(0));
                i += 1;
                break;
            case "object":
                if (Array.isArray(field)) {
                    this.setUint8(i, "A".charCodeAt(0));
                    i += 1;
                    i += this.setArray(i, field, littleEndian);
                }
                else if (field instanceof Uint8Array) {
                    this.setUint8(i, "x".charCodeAt(0));
                    i += 1;
                    i += this.setByteArray(i, field);
                }
                else if (field instanceof ArrayBuffer) {
                    this.setUint8(i, "x".charCodeAt(0));
                    i += 1;
                    i += this.setByteArray(i, new Uint8Array(field));
                }
                else if (field instanceof Date) {
                    this.setUint8(i, "T".charCodeAt(0));
                    i += 1;
                    const unixEpoch = Math.floor(Number(field) / 1000);
                    this.setInt64(i, unixEpoch, littleEndian);
                    i += 8;
                }
                else if (field === null) {
                    this.setUint8(i, "V".charCodeAt(0));
                    i += 1;
                }
                else {
                    this.setUint8(i, "F".charCodeAt(0));
                    i += 1;
                    i += this.setTable(i, field, littleEndian);
                }
                break;
            default:
                throw new Error(`Unsupported field type '${field}'`);
        }
        return i - byteOffset;
    }
    getArray(byteOffset, littleEndian) {
        const len = this.getUint32(byteOffset, littleEndian);
        byteOffset += 4;
        const endOffset = byteOffset + len;
        const v = [];
        for (; byteOffset < endOffset;) {
            const [field, fieldLen] = this.getField(byteOffset, littleEndian);
            byteOffset += fieldLen;
            v.push(field);
        }
        return [v, len + 4];
    }
    setArray(byteOffset, array, littleEndian) {
        const start = byteOffset;
        byteOffset += 4;
        array.forEach((e) => {
            byteOffset += this.setField(byteOffset, e, littleEndian);
        });
        this.setUint32(start, byteOffset - start - 4, littleEndian);
        return byteOffset - start;
    }
    getByteArray(byteOffset, littleEndian) {
        const len = this.getUint32(byteOffset, littleEndian);
        byteOffset += 4;
        const v = new Uint8Array(this.buffer, this.byteOffset + byteOffset, len);
        return [v, len + 4];
    }
    setByteArray(byteOffset, data, littleEndian) {
        this.setUint32(byteOffset, data.byteLength, littleEndian);
        byteOffset += 4;
        const view = new Uint8Array(this.buffer, this.byteOffset + byteOffset, data.byteLength);
        view.set(data);
        return data.byteLength + 4;
    }
}

var Type;
(function (Type) {
    Type[Type["METHOD"] = 1] = "METHOD";
    Type[Type["HEADER"] = 2] = "HEADER";
    Type[Type["BODY"] = 3] = "BODY";
    Type[Type["HEARTBEAT"] = 8] = "HEARTBEAT";
})(Type || (Type = {}));
var End;
(function (End) {
    End[End["CODE"] = 206] = "CODE";
})(End || (End = {}));
var ClassId;
(function (ClassId) {
    ClassId[ClassId["CONNECTION"] = 10] = "CONNECTION";
    ClassId[ClassId["CHANNEL"] = 20] = "CHANNEL";
    ClassId[ClassId["EXCHANGE"] = 40] = "EXCHANGE";
    ClassId[ClassId["QUEUE"] = 50] = "QUEUE";
    ClassId[ClassId["BASIC"] = 60] = "BASIC";
    ClassId[ClassId["TX"] = 90] = "TX";
    ClassId[ClassId["CONFIRM"] = 85] = "CONFIRM";
})(ClassId || (ClassId = {}));
var ConnectionMethod;
(function (ConnectionMethod) {
    ConnectionMethod[ConnectionMethod["START"] = 10] = "START";
    ConnectionMethod[ConnectionMethod["START_OK"] = 11] = "START_OK";
    ConnectionMethod[ConnectionMethod["SECURE"] = 20] = "SECURE";
    ConnectionMethod[ConnectionMethod["SECURE_OK"] = 21] = "SECURE_OK";
    ConnectionMethod[ConnectionMethod["TUNE"] = 30] = "TUNE";
    ConnectionMethod[ConnectionMethod["TUNE_OK"] = 31] = "TUNE_OK";
    ConnectionMethod[ConnectionMethod["OPEN"] = 40] = "OPEN";
    ConnectionMethod[ConnectionMethod["OPEN_OK"] = 41] = "OPEN_OK";
    ConnectionMethod[ConnectionMethod["CLOSE"] = 50] = "CLOSE";
    ConnectionMethod[ConnectionMethod["CLOSE_OK"] = 51] = "CLOSE_OK";
    ConnectionMethod[ConnectionMethod["BLOCKED"] = 60] = "BLOCKED";
    ConnectionMethod[ConnectionMethod["UNBLOCKED"] = 61] = "UNBLOCKED";
    ConnectionMethod[ConnectionMethod["UPDATE_SECRET"] = 70] = "UPDATE_SECRET";
    ConnectionMethod[ConnectionMethod["UPDATE_SECRET_OK"] = 71] = "UPDATE_SECRET_OK";
})(ConnectionMethod || (ConnectionMethod = {}));
var ChannelMethod;
(function (ChannelMethod) {
    ChannelMethod[ChannelMethod["OPEN"] = 10] = "OPEN";
    ChannelMethod[ChannelMethod["OPEN_OK"] = 11] = "OPEN_OK";
    ChannelMethod[ChannelMethod["FLOW"] = 20] = "FLOW";
    ChannelMethod[ChannelMethod["FLOW_OK"] = 21] = "FLOW_OK";
    ChannelMethod[ChannelMethod["CLOSE"] = 40] = "CLOSE";
    ChannelMethod[ChannelMethod["CLOSE_OK"] = 41] = "CLOSE_OK";
})(ChannelMethod || (ChannelMethod = {}));
var ExchangeMethod;
(function (ExchangeMethod) {
    ExchangeMethod[ExchangeMethod["DECLARE"] = 10] = "DECLARE";
    ExchangeMethod[ExchangeMethod["DECLARE_OK"] = 11] = "DECLARE_OK";
    ExchangeMethod[ExchangeMethod["DELETE"] = 20] = "DELETE";
    ExchangeMethod[ExchangeMethod["DELETE_OK"] = 21] = "DELETE_OK";
    ExchangeMethod[ExchangeMethod["BIND"] = 30] = "BIND";
    ExchangeMethod[ExchangeMethod["BIND_OK"] = 31] = "BIND_OK";
    ExchangeMethod[ExchangeMethod["UNBIND"] = 40] = "UNBIND";
    ExchangeMethod[ExchangeMethod["UNBIND_OK"] = 51] = "UNBIND_OK";
})(ExchangeMethod || (ExchangeMethod = {}));
var QueueMethod;
(function (QueueMethod) {
    QueueMethod[QueueMethod["DECLARE"] = 10] = "DECLARE";
    QueueMethod[QueueMethod["DECLARE_OK"] = 11] = "DECLARE_OK";
    QueueMethod[QueueMethod["BIND"] = 20] = "BIND";
    QueueMethod[QueueMethod["BIND_OK"] = 21] = "BIND_OK";
    QueueMethod[QueueMethod["PURGE"] = 30] = "PURGE";
    QueueMethod[QueueMethod["PURGE_OK"] = 31] = "PURGE_OK";
    QueueMethod[QueueMethod["DELETE"] = 40] = "DELETE";
    QueueMethod[QueueMethod["DELETE_OK"] = 41] = "DELETE_OK";
    QueueMethod[QueueMethod["UNBIND"] = 50] = "UNBIND";
    QueueMethod[QueueMethod["UNBIND_OK"] = 51] = "UNBIND_OK";
})(QueueMethod || (QueueMethod = {}));
var BasicMethod;
(function (BasicMethod) {
    BasicMethod[BasicMethod["QOS"] = 10] = "QOS";
    BasicMethod[BasicMethod["QOS_OK"] = 11] = "QOS_OK";
    BasicMethod[BasicMethod["CONSUME"] = 20] = "CONSUME";
    BasicMethod[BasicMethod["CONSUME_OK"] = 21] = "CONSUME_OK";
    BasicMethod[BasicMethod["CANCEL"] = 30] = "CANCEL";
    BasicMethod[BasicMethod["CANCEL_OK"] = 31] = "CANCEL_OK";
    BasicMethod[BasicMethod["PUBLISH"] = 40] = "PUBLISH";
    BasicMethod[BasicMethod["RETURN"] = 50] = "RETURN";
    BasicMethod[BasicMethod["DELIVER"] = 60] = "DELIVER";
    BasicMethod[BasicMethod["GET"] = 70] = "GET";
    BasicMethod[BasicMethod["GET_OK"] = 71] = "GET_OK";
    BasicMethod[BasicMethod["GET_EMPTY"] = 72] = "GET_EMPTY";
    BasicMethod[BasicMethod["ACK"] = 80] = "ACK";
    BasicMethod[BasicMethod["REJECT"] = 90] = "REJECT";
    BasicMethod[BasicMethod["RECOVER_ASYNC"] = 100] = "RECOVER_ASYNC";
    BasicMethod[BasicMethod["RECOVER"] = 110] = "RECOVER";
    BasicMethod[BasicMethod["RECOVER_OK"] = 111] = "RECOVER_OK";
    BasicMethod[BasicMethod["NACK"] = 120] = "NACK";
})(BasicMethod || (BasicMethod = {}));
var TxMethod;
(function (TxMethod) {
    TxMethod[TxMethod["SELECT"] = 10] = "SELECT";
    TxMethod[TxMethod["SELECT_OK"] = 11] = "SELECT_OK";
    TxMethod[TxMethod["COMMIT"] = 20] = "COMMIT";
    TxMethod[TxMethod["COMMIT_OK"] = 21] = "COMMIT_OK";
    TxMethod[TxMethod["ROLLBACK"] = 30] = "ROLLBACK";
    TxMethod[TxMethod["ROLLBACK_OK"] = 31] = "ROLLBACK_OK";
})(TxMethod || (TxMethod = {}));
var ConfirmMethod;
(function (ConfirmMethod) {
    ConfirmMethod[ConfirmMethod["SELECT"] = 10] = "SELECT";
    ConfirmMethod[ConfirmMethod["SELECT_OK"] = 11] = "SELECT_OK";
})(ConfirmMethod || (ConfirmMethod = {}));
class Writer {
    constructor(options) {
        this.view = new AMQPView(new ArrayBuffer(options.bufferSize));
        this.offset = 0;
        this.writeUint8(options.type);
        this.writeUint16(options.channel);
        this.writeUint32(options.frameSize ?? 0);
        this.writeUint16(options.classId);
        this.writeUint16(options.method);
    }
    finalize() {
        const currentFrameSize = this.view.getUint32(3);
        if (currentFrameSize === 0) {
            const value = this.offset - 7;
            this.view.setUint32(3, value);
        }
        this.view.setUint8(this.offset, End.CODE);
        this.offset += 1;
    }
    getBuffer() {
        return this.view.buffer;
    }
    toUint8Array() {
        return new Uint8Array(this.view.buffer, 0, this.offset);
    }
    writeUint8(value) {
        this.view.setUint8(this.offset, value);
        this.offset += 1;
    }
    writeUint16(value) {
        this.view.setUint16(this.offset, value);
        this.offset += 2;
    }
    writeUint32(value) {
        this.view.setUint32(this.offset, value);
        this.offset += 4;
    }
    writeUint64(value) {
        this.view.setUint64(this.offset, value);
        this.offset += 8;
    }
    writeShortString(value) {
        const bytesWritten = this.view.setShortString(this.offset, value);
        this.offset += bytesWritten;
    }
    writeLongString(value) {
        const bytesWritten = this.view.setLongString(this.offset, value);
        this.offset += bytesWritten;
    }
    writeTable(table) {
        const bytesWritten = this.view.setTable(this.offset, table);
        this.offset += bytesWritten;
    }
}

class AMQPConsumer {
    constructor(channel, tag, onMessage) {
        this.closed = false;
        this.channel = channel;
        this.tag = tag;
        this.onMessage = onMessage;
    }
    wait(timeout) {
        if (this.closedError)
            return Promise.reject(this.closedError);
        if (this.closed)
            return Promise.resolve();
        return new Promise((resolve, reject) => {
            this.resolveWait = resolve;
            this.rejectWait = reject;
            if (timeout) {
                const onTimeout = () => reject(new AMQPError("Timeout", this.channel.connection));
                this.timeoutId = setTimeout(onTimeout, timeout);
            }
        });
    }
    cancel() {
        if (this.channel.closed)
            return Promise.resolve(this.channel);
        if (!this.cancelPromise) {
            this.cancelPromise = this.channel.basicCancel(this.tag);
        }
        return this.cancelPromise;
    }
    setClosed(err) {
        this.closed = true;
        if (err)
            this.closedError = err;
        if (this.timeoutId)
            clearTimeout(this.timeoutId);
        if (err) {
            if (this.rejectWait)
                this.rejectWait(err);
        }
        else {
            if (this.resolveWait)
                this.resolveWait();
        }
    }
}
class AMQPGeneratorConsumer extends AMQPConsumer {
    constructor(channel, tag) {
        super(channel, tag, (msg) => {
            if (this.messageResolver) {
                this.messageResolver(msg);
                this.messageResolver = null;
            }
            else if (this.messageQueue) {
                this.messageQueue.push(msg);
            }
        });
        this.messageQueue = [];
        this.messageResolver = null;
    }
    get messages() {
        if (this.generator) {
            return this.generator;
        }
        this.generator = this.generateMessages();
        return this.generator;
    }
    async *generateMessages() {
        try {
            while (!this.closedError && !this.closed) {
                const msg = this.messageQueue.shift();
                if (msg) {
                    yield msg;
                }
                else {
                    const msg = await new Promise((resolve) => {
                        this.messageResolver = resolve;
                    });
                    if (this.closedError || this.closed)
                        break;
                    yield msg;
                }
            }
            if (this.closedError)
                throw this.closedError;
        }
        finally {
            try {
                await this.cancel();
            }
            catch {
            }
        }
    }
    setClosed(err) {
        super.setClosed(err);
        if (this.messageResolver) {
            const resolver = this.messageResolver;
            this.messageResolver = null;
            resolver(undefined);
        }
    }
}

class AMQPChannel {
    constructor(connection, id) {
        this.consumers = new Map();
        this.rpcQueue = Promise.resolve(true);
        this.rpcCallbacks = [];
        this.unconfirmedPublishes = [];
        this.closed = false;
        this.confirmId = 0;
        this.connection = connection;
        this.id = id;
        this.onerror = (reason) => {
            this.logger?.error(`channel ${this.id} closed: ${reason}`);
            this.connection.onerror(new AMQPError(`Channel ${this.id} closed: ${reason}`, this.connection));
        };
    }
    get logger() {
        return this.connection.logger;
    }
    open() {
        const channelOpen = new Writer({
            bufferSize: 13,
            type: Type.METHOD,
            channel: this.id,
            frameSize: 5,
            classId: ClassId.CHANNEL,
            method: ChannelMethod.OPEN,
        });
        channelOpen.writeUint8(0);
        channelOpen.finalize();
        return this.sendRpc(channelOpen);
    }
    prefetch(prefetchCount) {
        return this.basicQos(prefetchCount);
    }
    onReturn(message) {
        this.logger?.error("Message returned from server", message);
    }
    close(reason = "", code = 200) {
        if (this.closed)
            return this.rejectClosed();
        this.closed = true;
        const frame = new Writer({
            bufferSize: 512,
            type: Type.METHOD,
            channel: this.id,
            classId: ClassId.CHANNEL,
            method: ChannelMethod.CLOSE,
        });
        frame.writeUint16(code);
        frame.writeShortString(reason);
        frame.writeUint16(0);
        frame.writeUint16(0);
        frame.finalize();
        return this.sendRpc(frame);
    }
    basicGet(queue, { noAck = true } = {}) {
        if (this.closed)
            return this.rejectClosed();
        const frame = new Writer({
            bufferSize: 512,
            type: Type.METHOD,
            channel: this.id,
            classId: ClassId.BASIC,
            method: BasicMethod.GET,
        });
        frame.writeUint16(0);
        frame.writeShortString(queue);
        frame.writeUint8(noAck ? 1 : 0);
        frame.finalize();
        return this.sendRpc(frame);
    }
    basicConsume(queue, { tag = "", noAck = true, exclusive = false, args = {} } = {}, callback) {
        if (this.closed)
            return this.rejectClosed();
        const frame = new Writer({
            bufferSize: 4096,
            type: Type.METHOD,
            channel: this.id,
            classId: ClassId.BASIC,
            method: BasicMethod.CONSUME,
        });
        frame.writeUint16(0);
        frame.writeShortString(queue);
        frame.writeShortString(tag);
        let bits = 0;
        if (noAck)
            bits = bits | (1 << 1);
        if (exclusive)
            bits = bits | (1 << 2);
        frame.writeUint8(bits);
        frame.writeTable(args);
        frame.finalize();
        return new Promise((resolve, reject) => {
            this.sendRpc(frame)
                .then((consumerTag) => {
                let consumer;
                if (callback) {
                    consumer = new AMQPConsumer(this, consumerTag, callback);
                }
                else {
                    consumer = new AMQPGeneratorConsumer(this, consumerTag);
                }
                this.consumers.set(consumerTag, consumer);
                resolve(consumer);
            })
                .catch(reject);
        });
    }
    basicCancel(tag) {
        if (this.closed)
            return this.rejectClosed();
        const frame = new Writer({
            bufferSize: 512,
            type: Type.METHOD,
            channel: this.id,
            classId: ClassId.BASIC,
            method: BasicMethod.CANCEL,
        });
        frame.writeShortString(tag);
        frame.writeUint8(0);
        frame.finalize();
        return new Promise((resolve, reject) => {
            this.sendRpc(frame)
                .then((consumerTag) => {
                const consumer = this.consumers.get(consumerTag);
                if (consumer) {
                    consumer.setClosed();
                    this.consumers.delete(consumerTag);
                }
                resolve(this);
            })
                .catch(reject);
        });
    }
    basicAck(deliveryTag, multiple = false) {
        if (this.closed)
            return this.rejectClosed();
        const frame = new Writer({
            bufferSize: 21,
            type: Type.METHOD,
            channel: this.id,
            frameSize: 13,
            classId: ClassId.BASIC,
            method: BasicMethod.ACK,
        });
        frame.writeUint64(deliveryTag);
        frame.writeUint8(multiple ? 1 : 0);
        frame.finalize();
        return this.connection.send(frame.toUint8Array());
    }
    basicNack(deliveryTag, requeue = false, multiple = false) {
        if (this.closed)
            return this.rejectClosed();
        const frame = new Writer({
            bufferSize: 21,
            type: Type.METHOD,
            channel: this.id,
            frameSize: 13,
            classId: ClassId.BASIC,
            method: BasicMethod.NACK,
        });
        frame.writeUint64(deliveryTag);
        let bits = 0;
        if (multiple)
            bits = bits | (1 << 0);
        if (requeue)
            bits = bits | (1 << 1);
        frame.writeUint8(bits);
        frame.finalize();
        return this.connection.send(frame.toUint8Array());
    }
    basicReject(deliveryTag, requeue = false) {
        if (this.closed)
            return this.rejectClosed();
        const frame = new Writer({
            bufferSize: 21,
            type: Type.METHOD,
            channel: this.id,
            frameSize: 13,
            classId: ClassId.BASIC,
            method: BasicMethod.REJECT,
        });
        frame.writeUint64(deliveryTag);
        frame.writeUint8(requeue ? 1 : 0);
        frame.finalize();
        return this.connection.send(frame.toUint8Array());
    }
    basicRecover(requeue = false) {
        if (this.closed)
            return this.rejectClosed();
        const frame = new Writer({
            bufferSize: 13,
            type: Type.METHOD,
            channel: this.id,
            frameSize: 5,
            classId: ClassId.BASIC,
            method: BasicMethod.RECOVER,
        });
        frame.writeUint8(requeue ? 1 : 0);
        frame.finalize();
        return this.sendRpc(frame);
    }
    async basicPublish(exchange, routingKey, data, properties = {}, mandatory = false, immediate = false) {
        if (this.closed)
            return this.rejectClosed();
        if (this.connection.blocked)
            return Promise.reject(new AMQPError(`Connection blocked by server: ${this.connection.blocked}`, this.connection));
        let body;
        if (typeof Buffer !== "undefined" && data instanceof Buffer) {
            body = data;
        }
        else if (data instanceof Uint8Array) {
            body = data;
        }
        else if (data instanceof ArrayBuffer) {
            body = new Uint8Array(data);
        }
        else if (data === null) {
            body = new Uint8Array(0);
        }
        else if (typeof data === "string") {
            body = this.connection.textEncoder.encode(data);
        }
        else {
            throw new TypeError(`Invalid type ${typeof data} for parameter data`);
        }
        let j = 0;
        let buffer = this.connection.bufferPool.pop() || new AMQPView(new ArrayBuffer(this.connection.frameMax));
        buffer.setUint8(j, Type.METHOD);
        j += 1;
        buffer.setUint16(j, this.id);
        j += 2;
        j += 4;
        buffer.setUint16(j, ClassId.BASIC);
        j += 2;
        buffer.setUint16(j, BasicMethod.PUBLISH);
        j += 2;
        buffer.setUint16(j, 0);
        j += 2;
        j += buffer.setShortString(j, exchange);
        j += buffer.setShortString(j, routingKey);
        let bits = 0;
        if (mandatory)
            bits = bits | (1 << 0);
        if (immediate)
            bits = bits | (1 << 1);
        buffer.setUint8(j, bits);
        j += 1;
        buffer.setUint8(j, End.CODE);
        j += 1;
        buffer.setUint32(3, j - 8);
        const headerStart = j;
        buffer.setUint8(j, Type.HEADER);
        j += 1;
        buffer.setUint16(j, this.id);
        j += 2;
        j += 4;
        buffer.setUint16(j, ClassId.BASIC);
        j += 2;
        buffer.setUint16(j, 0);
        j += 2;
        buffer.setUint32(j, 0);
        j += 4;
        buffer.setUint32(j, body.byteLength);
        j += 4;
        j += buffer.setProperties(j, properties);
        buffer.setUint8(j, End.CODE);
        j += 1;
        buffer.setUint32(headerStart + 3, j - headerStart - 8);
        let bufferView = new Uint8Array(buffer.buffer);
        const bodyFrameCount = Math.ceil(body.byteLength / (this.connection.frameMax - 8));
        const bufferSize = j + body.byteLength + 8 * bodyFrameCount;
        if (buffer.byteLength < bufferSize) {
            const newBuffer = new ArrayBuffer(bufferSize);
            const newBufferView = new Uint8Array(newBuffer);
            newBufferView.set(bufferView.subarray(0, j));
            buffer = new AMQPView(newBuffer);
            bufferView = newBufferView;
        }
        for (let bodyPos = 0; bodyPos < body.byteLength;) {
            const frameSize = Math.min(body.byteLength - bodyPos, this.connection.frameMax - 8);
            const dataSlice = body.subarray(bodyPos, bodyPos + frameSize);
            buffer.setUint8(j, Type.BODY);
            j += 1;
            buffer.setUint16(j, this.id);
            j += 2;
            buffer.setUint32(j, frameSize);
            j += 4;
            bufferView.set(dataSlice, j);
            j += frameSize;
            buffer.setUint8(j, End.CODE);
            j += 1;
            bodyPos += frameSize;
        }
        const sendFrames = this.connection.send(bufferView.subarray(0, j));
        if (this.confirmId) {
            const wait4Confirm = new Promise((resolve, reject) => this.unconfirmedPublishes.push([this.confirmId++, resolve, reject]));
            return sendFrames.then(() => wait4Confirm).finally(() => this.connection.bufferPool.push(buffer));
        }
        else {
            return sendFrames.then(() => 0).finally(() => this.connection.bufferPool.push(buffer));
        }
    }
    basicQos(prefetchCount, prefetchSize = 0, global = false) {
        if (this.closed)
            return this.rejectClosed();
        const frame = new Writer({
            bufferSize: 19,
            type: Type.METHOD,
            channel: this.id,
            frameSize: 11,
            classId: ClassId.BASIC,
            method: BasicMethod.QOS,
        });
        frame.writeUint32(prefetchSize);
        frame.writeUint16(prefetchCount);
        frame.writeUint8(global ? 1 : 0);
        frame.finalize();
        return this.sendRpc(frame);
    }
    basicFlow(active = true) {
        if (this.closed)
            return this.rejectClosed();
        const frame = new Writer({
            bufferSize: 13,
            type: Type.METHOD,
            channel: this.id,
            frameSize: 5,
            classId: ClassId.CHANNEL,
            method: BasicMethod.CONSUME,
        });
        frame.writeUint8(active ? 1 : 0);
        frame.finalize();
        return this.sendRpc(frame);
    }
    confirmSelect() {
        if (this.closed)
            return this.rejectClosed();
        const frame = new Writer({
            bufferSize: 13,
            type: Type.METHOD,
            channel: this.id,
            frameSize: 5,
            classId: ClassId.CONFIRM,
            method: ConfirmMethod.SELECT,
        });
        frame.writeUint8(0);
        frame.finalize();
        return this.sendRpc(frame);
    }
    queueDeclare(name = "", { passive = false, durable = name !== "", autoDelete = name === "", exclusive = name === "" } = {}, args = {}) {
        if (this.closed)
            return this.rejectClosed();
        const declare = new Writer({
            bufferSize: 4096,
            type: Type.METHOD,
            channel: this.id,
            classId: ClassId.QUEUE,
            method: QueueMethod.DECLARE,
        });
        declare.writeUint16(0);
        declare.writeShortString(name);
        let bits = 0;
        if (passive)
            bits = bits | (1 << 0);
        if (durable)
            bits = bits | (1 << 1);
        if (exclusive)
            bits = bits | (1 << 2);
        if (autoDelete)
            bits = bits | (1 << 3);
        declare.writeUint8(bits);
        declare.writeTable(args);
        declare.finalize();
        return this.sendRpc(declare);
    }
    queueDelete(name = "", { ifUnused = false, ifEmpty = false } = {}) {
        if (this.closed)
            return this.rejectClosed();
        const frame = new Writer({
            bufferSize: 512,
            type: Type.METHOD,
            channel: this.id,
            classId: ClassId.QUEUE,
            method: QueueMethod.DELETE,
        });
        frame.writeUint16(0);
        frame.writeShortString(name);
        let bits = 0;
        if (ifUnused)
            bits = bits | (1 << 0);
        if (ifEmpty)
            bits = bits | (1 << 1);
        frame.writeUint8(bits);
        frame.finalize();
        return this.sendRpc(frame);
    }
    queueBind(queue, exchange, routingKey, args = {}) {
        if (this.closed)
            return this.rejectClosed();
        const bind = new Writer({
            bufferSize: 4096,
            type: Type.METHOD,
            channel: this.id,
            classId: ClassId.QUEUE,
            method: BasicMethod.CONSUME,
        });
        bind.writeUint16(0);
        bind.writeShortString(queue);
        bind.writeShortString(exchange);
        bind.writeShortString(routingKey);
        bind.writeUint8(0);
        bind.writeTable(args);
        bind.finalize();
        return this.sendRpc(bind);
    }
    queueUnbind(queue, exchange, routingKey, args = {}) {
        if (this.closed)
            return this.rejectClosed();
        const unbind = new Writer({
            bufferSize: 4096,
            type: Type.METHOD,
            channel: this.id,
            classId: ClassId.QUEUE,
            method: QueueMethod.UNBIND,
        });
        unbind.writeUint16(0);
        unbind.writeShortString(queue);
        unbind.writeShortString(exchange);
        unbind.writeShortString(routingKey);
        unbind.writeTable(args);
        unbind.finalize();
        return this.sendRpc(unbind);
    }
    queuePurge(queue) {
        if (this.closed)
            return this.rejectClosed();
        const purge = new Writer({
            bufferSize: 512,
            type: Type.METHOD,
            channel: this.id,
            classId: ClassId.QUEUE,
            method: BasicMethod.CANCEL,
        });
        purge.writeUint16(0);
        purge.writeShortString(queue);
        purge.writeUint8(0);
        purge.finalize();
        return this.sendRpc(purge);
    }
    exchangeDeclare(name, type, { passive = false, durable = true, autoDelete = false, internal = false } = {}, args = {}) {
        if (this.closed)
            return this.rejectClosed();
        const frame = new Writer({
            bufferSize: 4096,
            type: Type.METHOD,
            channel: this.id,
            classId: ClassId.EXCHANGE,
            method: ExchangeMethod.DECLARE,
        });
        frame.writeUint16(0);
        frame.writeShortString(name);
        frame.writeShortString(type);
        let bits = 0;
        if (passive)
            bits = bits | (1 << 0);
        if (durable)
            bits = bits | (1 << 1);
        if (autoDelete)
            bits = bits | (1 << 2);
        if (internal)
            bits = bits | (1 << 3);
        frame.writeUint8(bits);
        frame.writeTable(args);
        frame.finalize();
        return this.sendRpc(frame);
    }
    exchangeDelete(name, { ifUnused = false } = {}) {
        if (this.closed)
            return this.rejectClosed();
        const frame = new Writer({
            bufferSize: 512,
            type: Type.METHOD,
            channel: this.id,
            classId: ClassId.EXCHANGE,
            method: BasicMethod.CONSUME,
        });
        frame.writeUint16(0);
        frame.writeShortString(name);
        let bits = 0;
        if (ifUnused)
            bits = bits | (1 << 0);
        frame.writeUint8(bits);
        frame.finalize();
        return this.sendRpc(frame);
    }
    exchangeBind(destination, source, routingKey = "", args = {}) {
        if (this.closed)
            return this.rejectClosed();
        const bind = new Writer({
            bufferSize: 4096,
            type: Type.METHOD,
            channel: this.id,
            classId: ClassId.EXCHANGE,
            method: BasicMethod.CANCEL,
        });
        bind.writeUint16(0);
        bind.writeShortString(destination);
        bind.writeShortString(source);
        bind.writeShortString(routingKey);
        bind.writeUint8(0);
        bind.writeTable(args);
        bind.finalize();
        return this.sendRpc(bind);
    }
    exchangeUnbind(destination, source, routingKey = "", args = {}) {
        if (this.closed)
            return this.rejectClosed();
        const unbind = new Writer({
            bufferSize: 4096,
            type: Type.METHOD,
            channel: this.id,
            classId: ClassId.EXCHANGE,
            method: ExchangeMethod.UNBIND,
        });
        unbind.writeUint16(0);
        unbind.writeShortString(destination);
        unbind.writeShortString(source);
        unbind.writeShortString(routingKey);
        unbind.writeUint8(0);
        unbind.writeTable(args);
        unbind.finalize();
        return this.sendRpc(unbind);
    }
    txSelect() {
        return this.txMethod(10);
    }
    txCommit() {
        return this.txMethod(20);
    }
    txRollback() {
        return this.txMethod(30);
    }
    txMethod(methodId) {
        if (this.closed)
            return this.rejectClosed();
        const frame = new Writer({
            bufferSize: 12,
            type: Type.METHOD,
            channel: this.id,
            frameSize: 4,
            classId: ClassId.TX,
            method: methodId,
        });
        frame.finalize();
        return this.sendRpc(frame);
    }
    sendRpc(frame) {
        const bytes = frame.toUint8Array();
        return new Promise((resolve, reject) => {
            this.rpcQueue = this.rpcQueue
                .then(() => {
                this.rpcCallbacks.push([resolve, reject]);
                return this.connection.send(bytes).catch((err) => {
                    const callbacks = this.rpcCallbacks.pop();
                    if (callbacks) {
                        callbacks[1](err);
                    }
                    else {
                        reject(err);
                    }
                });
            })
                .catch(reject);
        });
    }
    setClosed(err) {
        const closedByServer = err !== undefined;
        err || (err = new Error("Connection closed by client"));
        if (!this.closed) {
            this.closed = true;
            this.consumers.forEach((consumer) => consumer.setClosed(closedByServer ? err : undefined));
            this.consumers.clear();
            this.rpcCallbacks.forEach(([, reject]) => reject(err));
            this.rpcCallbacks.length = 0;
            this.unconfirmedPublishes.forEach(([, , reject]) => reject(err));
            this.unconfirmedPublishes.length = 0;
            if (closedByServer)
                this.onerror(err.message);
        }
    }
    rejectClosed() {
        return Promise.reject(new AMQPError("Channel is closed", this.connection));
    }
    publishConfirmed(deliveryTag, multiple, nack) {
        const idx = this.unconfirmedPublishes.findIndex(([tag]) => tag === deliveryTag);
        if (idx !== -1) {
            const confirmed = multiple
                ? this.unconfirmedPublishes.splice(0, idx + 1)
                : this.unconfirmedPublishes.splice(idx, 1);
            confirmed.forEach(([tag, resolve, reject]) => {
                if (nack)
                    reject(new Error("Message rejected"));
                else
                    resolve(tag);
            });
        }
        else {
            this.logger?.warn("Cant find unconfirmed deliveryTag", deliveryTag, "multiple:", multiple, "nack:", nack);
        }
    }
    onMessageReady(message) {
        message.body = message._rawBytes;
        if (this.delivery) {
            delete this.delivery;
            this.deliver(message);
        }
        else if (this.getMessage) {
            delete this.getMessage;
            this.resolveRPC(message);
        }
        else {
            delete this.returned;
            this.onReturn(message);
        }
    }
    resolveRPC(value) {
        const callbacks = this.rpcCallbacks.shift();
        if (callbacks) {
            callbacks[0](value);
        }
        return value;
    }
    rejectRPC(err) {
        const callbacks = this.rpcCallbacks.shift();
        if (callbacks) {
            callbacks[1](err);
        }
        return err;
    }
    deliver(message) {
        queueMicrotask(() => {
            const consumer = this.consumers.get(message.consumerTag);
            if (consumer) {
                const ret = consumer.onMessage(message);
                if (ret instanceof Promise)
                    ret.catch((err) => this.logger?.warn("Consumer", message.consumerTag, "callback failed:", err));
            }
            else {
                this.logger?.warn("Consumer", message.consumerTag, "not available on channel", this.id);
            }
        });
    }
}

class AMQPMessage {
    get isAcked() {
        return this.acked;
    }
    constructor(channel) {
        this.exchange = "";
        this.routingKey = "";
        this.properties = {};
        this.bodySize = 0;
        this._rawBytes = null;
        this.bodyPos = 0;
        this.body = null;
        this.deliveryTag = 0;
        this.consumerTag = "";
        this.redelivered = false;
        this.acked = false;
        this.channel = channel;
    }
    bodyToString() {
        if (this._rawBytes) {
            if (typeof Buffer !== "undefined")
                return Buffer.from(this._rawBytes).toString();
            else
                return new TextDecoder().decode(this._rawBytes);
        }
        else {
            return null;
        }
    }
    bodyString() {
        return this.bodyToString();
    }
    ack(multiple = false) {
        if (this.acked)
            return Promise.resolve();
        this.acked = true;
        return this.channel.basicAck(this.deliveryTag, multiple);
    }
    nack(requeue = false, multiple = false) {
        if (this.acked)
            return Promise.resolve();
        this.acked = true;
        return this.channel.basicNack(this.deliveryTag, requeue, multiple);
    }
    reject(requeue = false) {
        if (this.acked)
            return Promise.resolve();
        this.acked = true;
        return this.channel.basicReject(this.deliveryTag, requeue);
    }
    cancelConsumer() {
        return this.channel.basicCancel(this.consumerTag);
    }
}

const VERSION = "4.1.1";
const MIN_FRAME_SIZE = 8192;
class AMQPBaseClient {
    constructor(vhost, username, password, name, platform, frameMax = MIN_FRAME_SIZE, heartbeat = 0, channelMax = 0, logger) {
        this.closed = true;
        this.channelMax = 0;
        this.textEncoder = new TextEncoder();
        this.bufferPool = [];
        this.vhost = vhost;
        this.username = username;
        this.password = "";
        Object.defineProperty(this, "password", {
            value: password,
            enumerable: false,
        });
        if (name)
            this.name = name;
        if (platform)
            this.platform = platform;
        this.logger = logger || undefined;
        this.channels = [new AMQPChannel(this, 0)];
        this.onerror = (error) => {
            this.logger?.error("amqp-client connection closed", error.message);
        };
        if (frameMax < MIN_FRAME_SIZE)
            throw new Error(`frameMax must be ${MIN_FRAME_SIZE} or larger`);
        this.frameMax = frameMax;
        if (heartbeat < 0)
            throw new Error("heartbeat must be positive");
        this.heartbeat = heartbeat;
        if (channelMax && channelMax < 0)
            throw new Error("channelMax must be positive");
        this.channelMax = channelMax;
    }
    channel(id) {
        if (this.closed)
            return this.rejectClosed();
        if (id && id > 0) {
            const channel = this.channels[id];
            if (channel)
                return Promise.resolve(channel);
        }
        if (!id)
            id = this.channels.findIndex((ch) => ch === undefined);
        if (id === -1)
            id = this.channels.length;
        if (id > this.channelMax && this.channelMax > 0)
            return Promise.reject(new AMQPError("Max number of channels reached", this));
        const channel = new AMQPChannel(this, id);
        this.channels[id] = channel;
        return channel.open();
    }
    close(reason = "", code = 200) {
        if (this.closed)
            return this.rejectClosed();
        this.closed = true;
        const frame = new Writer({
            bufferSize: 512,
            type: Type.METHOD,
            channel: 0,
            classId: ClassId.CONNECTION,
            method: ConnectionMethod.CLOSE,
        });
        frame.writeUint16(code);
        frame.writeShortString(reason);
        frame.writeUint16(0);
        frame.writeUint16(0);
        frame.finalize();
        return new Promise((resolve, reject) => {
            this.send(frame.toUint8Array())
                .then(() => (this.closePromise = [resolve, reject]))
                .catch(reject);
        });
    }
    updateSecret(newSecret, reason) {
        const frame = new Writer({
            bufferSize: 8192,
            type: Type.METHOD,
            channel: 0,
            classId: ClassId.CONNECTION,
            method: ConnectionMethod.UPDATE_SECRET,
        });
        frame.writeLongString(newSecret);
        frame.writeShortString(reason);
        frame.finalize();
        return new Promise((resolve, reject) => {
            this.send(frame.toUint8Array())
                .then(() => (this.onUpdateSecretOk = resolve))
                .catch(reject);
        });
    }
    rejectClosed() {
        return Promise.reject(new AMQPError("Connection closed", this));
    }
    rejectConnect(err) {
        if (this.connectPromise) {
            const [, reject] = this.connectPromise;
            delete this.connectPromise;
            reject(err);
        }
        this.closed = true;
        this.closeSocket();
    }
    parseFrames(view) {
        for (let i = 0; i < view.byteLength;) {
            const type = view.getUint8(i);
            i += 1;
            const channelId = view.getUint16(i);
            i += 2;
            const frameSize = view.getUint32(i);
            i += 4;
            let frameEnd = 0;
            try {
                frameEnd = view.getUint8(i + frameSize);
            }
            catch {
                throw new AMQPError(`Frame end out of range, frameSize=${frameSize}, pos=${i}, byteLength=${view.byteLength}`, this);
            }
            if (frameEnd !== End.CODE)
                throw new AMQPError(`Invalid frame end ${frameEnd}, expected ${End.CODE}`, this);
            const channel = this.channels[channelId];
            if (!channel) {
                this.logger?.warn("AMQP channel", channelId, "not open");
                i += frameSize + 1;
                continue;
            }
            switch (type) {
                case Type.METHOD: {
                    const classId = view.getUint16(i);
                    i += 2;
                    const methodId = view.getUint16(i);
                    i += 2;
                    switch (classId) {
                        case ClassId.CONNECTION: {
                            switch (methodId) {
                                case ConnectionMethod.START: {
                                    i += frameSize - 4;
                                    const startOk = new Writer({
                                        bufferSize: 8192,
                                        type: Type.METHOD,
                                        channel: 0,
                                        classId: ClassId.CONNECTION,
                                        method: ConnectionMethod.START_OK,
                                    });
                                    const clientProps = {
                                        connection_name: this.name || undefined,
                                        product: "amqp-client.js",
                                        information: "https://github.com/cloudamqp/amqp-client.js",
                                        version: VERSION,
                                        platform: this.platform,
                                        capabilities: {
                                            authentication_failure_close: true,
                                            "basic.nack": true,
                                            "connection.blocked": true,
                                            consumer_cancel_notify: true,
                                            exchange_exchange_bindings: true,
                                            per_consumer_qos: true,
                                            publisher_confirms: true,
                                        },
                                    };
                                    startOk.writeTable(clientProps);
                                    startOk.writeShortString("PLAIN");
                                    const response = `\u0000${this.username}\u0000${this.password}`;
                                    startOk.writeLongString(response);
                                    startOk.writeShortString("");
                                    startOk.finalize();
                                    this.send(startOk.toUint8Array()).catch(this.rejectConnect);
                                    break;
                                }
                                case ConnectionMethod.TUNE: {
                                    const channelMax = view.getUint16(i);
                                    i += 2;
                                    const frameMax = view.getUint32(i);
                                    i += 4;
                                    const heartbeat = view.getUint16(i);
                                    i += 2;
                                    this.channelMax = this.channelMax === 0 ? channelMax : Math.min(this.channelMax, channelMax);
                                    this.frameMax = this.frameMax === 0 ? frameMax : Math.min(this.frameMax, frameMax);
                                    this.heartbeat = this.heartbeat === 0 ? 0 : Math.min(this.heartbeat, heartbeat);
                                    const tuneOk = new Writer({
                                        bufferSize: 20,
                                        type: Type.METHOD,
                                        channel: 0,
                                        frameSize: 12,
                                        classId: ClassId.CONNECTION,
                                        method: ConnectionMethod.TUNE_OK,
                                    });
                                    tuneOk.writeUint16(this.channelMax);
                                    tuneOk.writeUint32(this.frameMax);
                                    tuneOk.writeUint16(this.heartbeat);
                                    tuneOk.finalize();
                                    this.send(tuneOk.toUint8Array()).catch(this.rejectConnect);
                                    const open = new Writer({
                                        bufferSize: 512,
                                        type: Type.METHOD,
                                        channel: 0,
                                        classId: ClassId.CONNECTION,
                                        method: ConnectionMethod.OPEN,
                                    });
                                    open.writeShortString(this.vhost);
                                    open.writeUint8(0);
                                    open.writeUint8(0);
                                    open.finalize();
                                    this.send(open.toUint8Array()).catch(this.rejectConnect);
                                    break;
                                }
                                case ConnectionMethod.OPEN_OK: {
                                    i += 1;
                                    this.closed = false;
                                    const promise = this.connectPromise;
                                    if (promise) {
                                        const [resolve] = promise;
                                        delete this.connectPromise;
                                        resolve(this);
                                    }
                                    break;
                                }
                                case ConnectionMethod.CLOSE: {
                                    const code = view.getUint16(i);
                                    i += 2;
                                    const [text, strLen] = view.getShortString(i);
                                    i += strLen;
                                    const classId = view.getUint16(i);
                                    i += 2;
                                    const methodId = view.getUint16(i);
                                    i += 2;
                                    this.logger?.debug("connection closed by server", code, text, classId, methodId);
                                    const msg = `connection closed: ${text} (${code})`;
                                    const err = new AMQPError(msg, this);
                                    this.channels.forEach((ch) => ch.setClosed(err));
                                    this.channels = [new AMQPChannel(this, 0)];
                                    const closeOk = new Writer({
                                        bufferSize: 12,
                                        type: Type.METHOD,
                                        channel: 0,
                                        frameSize: 4,
                                        classId: ClassId.CONNECTION,
                                        method: ConnectionMethod.CLOSE_OK,
                                    });
                                    closeOk.finalize();
                                    this.send(closeOk.toUint8Array()).catch((err) => this.logger?.warn("Error while sending Connection#CloseOk", err));
                                    this.onerror(err);
                                    this.ondisconnect?.(err);
                                    this.rejectConnect(err);
                                    this.onUpdateSecretOk?.();
                                    break;
                                }
                                case ConnectionMethod.CLOSE_OK: {
                                    this.channels.forEach((ch) => ch.setClosed());
                                    this.channels = [new AMQPChannel(this, 0)];
                                    const promise = this.closePromise;
                                    if (promise) {
                                        const [resolve] = promise;
                                        delete this.closePromise;
                                        resolve();
                                        this.closeSocket();
                                    }
                                    break;
                                }
                                case ConnectionMethod.BLOCKED: {
                                    const [reason, len] = view.getShortString(i);
                                    i += len;
                                    this.logger?.warn("AMQP connection blocked:", reason);
                                    this.blocked = reason;
                                    this.onblocked?.(reason);
                                    break;
                                }
                                case ConnectionMethod.UNBLOCKED: {
                                    this.logger?.info("AMQP connection unblocked");
                                    delete this.blocked;
                                    this.onunblocked?.();
                                    break;
                                }
                                case ConnectionMethod.UPDATE_SECRET_OK: {
                                    this.logger?.info("AMQP connection update secret ok");
                                    this.onUpdateSecretOk?.();
                                    delete this.onUpdateSecretOk;
                                    break;
                                }
                                default:
                                    i += frameSize - 4;
                                    this.logger?.error("unsupported class/method id", classId, methodId);
                            }
                            break;
                        }
                        case ClassId.CHANNEL: {
                            switch (methodId) {
                                case ChannelMethod.OPEN_OK: {
                                    i += 4;
                                    channel.resolveRPC(channel);
                                    break;
                                }
                                case ChannelMethod.FLOW_OK: {
                                    const active = view.getUint8(i) !== 0;
                                    i += 1;
                                    channel.resolveRPC(active);
                                    break;
                                }
                                case ChannelMethod.CLOSE: {
                                    const code = view.getUint16(i);
                                    i += 2;
                                    const [text, strLen] = view.getShortString(i);
                                    i += strLen;
                                    const classId = view.getUint16(i);
                                    i += 2;
                                    const methodId = view.getUint16(i);
                                    i += 2;
                                    this.logger?.debug("channel", channelId, "closed", code, text, classId, methodId);
                                    const msg = `channel ${channelId} closed: ${text} (${code})`;
                                    const err = new AMQPError(msg, this);
                                    channel.setClosed(err);
                                    delete this.channels[channelId];
                                    const closeOk = new Writer({
                                        bufferSize: 12,
                                        type: Type.METHOD,
                                        channel: channelId,
                                        frameSize: 4,
                                        classId: ClassId.CHANNEL,
                                        method: ChannelMethod.CLOSE_OK,
                                    });
                                    closeOk.finalize();
                                    this.send(closeOk.toUint8Array()).catch((err) => this.logger?.error("Error while sending Channel#closeOk", err));
                                    break;
                                }
                                case ChannelMethod.CLOSE_OK: {
                                    channel.setClosed();
                                    delete this.channels[channelId];
                                    channel.resolveRPC();
                                    break;
                                }
                                default:
                                    i += frameSize - 4;
                                    this.logger?.error("unsupported class/method id", classId, methodId);
                            }
                            break;
                        }
                        case ClassId.EXCHANGE: {
                            switch (methodId) {
                                case ExchangeMethod.DECLARE_OK:
                                case ExchangeMethod.DELETE_OK:
                                case ExchangeMethod.BIND_OK:
                                case ExchangeMethod.UNBIND_OK: {
                                    channel.resolveRPC();
                                    break;
                                }
                                default:
                                    i += frameSize - 4;
                                    this.logger?.error("unsupported class/method id", classId, methodId);
                            }
                            break;
                        }
                        case ClassId.QUEUE: {
                            switch (methodId) {
                                case QueueMethod.DECLARE_OK: {
                                    const [name, strLen] = view.getShortString(i);
                                    i += strLen;
                                    const messageCount = view.getUint32(i);
                                    i += 4;
                                    const consumerCount = view.getUint32(i);
                                    i += 4;
                                    channel.resolveRPC({ name, messageCount, consumerCount });
                                    break;
                                }
                                case QueueMethod.BIND_OK: {
                                    channel.resolveRPC();
                                    break;
                                }
                                case QueueMethod.PURGE_OK: {
                                    const messageCount = view.getUint32(i);
                                    i += 4;
                                    channel.resolveRPC({ messageCount });
                                    break;
                                }
                                case QueueMethod.DELETE_OK: {
                                    const messageCount = view.getUint32(i);
                                    i += 4;
                                    channel.resolveRPC({ messageCount });
                                    break;
                                }
                                case QueueMethod.UNBIND_OK: {
                                    channel.resolveRPC();
                                    break;
                                }
                                default:
                                    i += frameSize - 4;
                                    this.logger?.error("unsupported class/method id", classId, methodId);
                            }
                            break;
                        }
                        case ClassId.BASIC: {
                            switch (methodId) {
                                case BasicMethod.QOS_OK: {
                                    channel.resolveRPC();
                                    break;
                                }
                                case BasicMethod.CONSUME_OK: {
                                    const [consumerTag, len] = view.getShortString(i);
                                    i += len;
                                    channel.resolveRPC(consumerTag);
                                    break;
                                }
                                case BasicMethod.CANCEL: {
                                    const [consumerTag, len] = view.getShortString(i);
                                    i += len;
                                    const noWait = view.getUint8(i) === 1;
                                    i += 1;
                                    const consumer = channel.consumers.get(consumerTag);
                                    if (consumer) {
                                        consumer.setClosed(new AMQPError("Consumer cancelled by the server", this));
                                        channel.consumers.delete(consumerTag);
                                    }
                                    if (!noWait) {
                                        const frame = new Writer({
                                            bufferSize: 512,
                                            type: Type.METHOD,
                                            channel: channel.id,
                                            classId: ClassId.BASIC,
                                            method: BasicMethod.CANCEL_OK,
                                        });
                                        frame.writeShortString(consumerTag);
                                        frame.finalize();
                                        this.send(frame.toUint8Array());
                                    }
                                    break;
                                }
                                case BasicMethod.CANCEL_OK: {
                                    const [consumerTag, len] = view.getShortString(i);
                                    i += len;
                                    channel.resolveRPC(consumerTag);
                                    break;
                                }
                                case BasicMethod.RETURN: {
                                    const code = view.getUint16(i);
                                    i += 2;
                                    const [text, len] = view.getShortString(i);
                                    i += len;
                                    const [exchange, exchangeLen] = view.getShortString(i);
                                    i += exchangeLen;
                                    const [routingKey, routingKeyLen] = view.getShortString(i);
                                    i += routingKeyLen;
                                    const message = new AMQPMessage(channel);
                                    message.exchange = exchange;
                                    message.routingKey = routingKey;
                                    message.replyCode = code;
                                    message.replyText = text;
                                    channel.returned = message;
                                    break;
                                }
                                case BasicMethod.DELIVER: {
                                    const [consumerTag, consumerTagLen] = view.getShortString(i);
                                    i += consumerTagLen;
                                    const deliveryTag = view.getUint64(i);
                                    i += 8;
                                    const redelivered = view.getUint8(i) === 1;
                                    i += 1;
                                    const [exchange, exchangeLen] = view.getShortString(i);
                                    i += exchangeLen;
                                    const [routingKey, routingKeyLen] = view.getShortString(i);
                                    i += routingKeyLen;
                                    const message = new AMQPMessage(channel);
                                    message.consumerTag = consumerTag;
                                    message.deliveryTag = deliveryTag;
                                    message.exchange = exchange;
                                    message.routingKey = routingKey;
                                    message.redelivered = redelivered;
                                    channel.delivery = message;
                                    break;
                                }
                                case BasicMethod.GET_OK: {
                                    const deliveryTag = view.getUint64(i);
                                    i += 8;
                                    const redelivered = view.getUint8(i) === 1;
                                    i += 1;
                                    const [exchange, exchangeLen] = view.getShortString(i);
                                    i += exchangeLen;
                                    const [routingKey, routingKeyLen] = view.getShortString(i);
                                    i += routingKeyLen;
                                    const messageCount = view.getUint32(i);
                                    i += 4;
                                    const message = new AMQPMessage(channel);
                                    message.deliveryTag = deliveryTag;
                                    message.redelivered = redelivered;
                                    message.exchange = exchange;
                                    message.routingKey = routingKey;
                                    message.messageCount = messageCount;
                                    channel.getMessage = message;
                                    break;
                                }
                                case BasicMethod.GET_EMPTY: {
                                    const [, len] = view.getShortString(i);
                                    i += len;
                                    channel.resolveRPC(null);
                                    break;
                                }
                                case BasicMethod.ACK: {
                                    const deliveryTag = view.getUint64(i);
                                    i += 8;
                                    const multiple = view.getUint8(i) === 1;
                                    i += 1;
                                    channel.publishConfirmed(deliveryTag, multiple, false);
                                    break;
                                }
                                case BasicMethod.RECOVER_OK: {
                                    channel.resolveRPC();
                                    break;
                                }
                                case BasicMethod.NACK: {
                                    const deliveryTag = view.getUint64(i);
                                    i += 8;
                                    const multiple = view.getUint8(i) === 1;
                                    i += 1;
                                    channel.publishConfirmed(deliveryTag, multiple, true);
                                    break;
                                }
                                default:
                                    i += frameSize - 4;
                                    this.logger?.error("unsupported class/method id", classId, methodId);
                            }
                            break;
                        }
                        case ClassId.CONFIRM: {
                            switch (methodId) {
                                case ConfirmMethod.SELECT_OK: {
                                    channel.confirmId = 1;
                                    channel.resolveRPC();
                                    break;
                                }
                                default:
                                    i += frameSize - 4;
                                    this.logger?.error("unsupported class/method id", classId, methodId);
                            }
                            break;
                        }
                        case ClassId.TX: {
                            switch (methodId) {
                                case TxMethod.SELECT_OK:
                                case TxMethod.COMMIT_OK:
                                case TxMethod.ROLLBACK_OK: {
                                    channel.resolveRPC();
                                    break;
                                }
                                default:
                                    i += frameSize - 4;
                                    this.logger?.error("unsupported class/method id", classId, methodId);
                            }
                            break;
                        }
                        default:
                            i += frameSize - 2;
                            this.logger?.error("unsupported class id", classId);
                    }
                    break;
                }
                case Type.HEADER: {
                    i += 4;
                    const bodySize = view.getUint64(i);
                    i += 8;
                    const [properties, propLen] = view.getProperties(i);
                    i += propLen;
                    const message = channel.delivery || channel.getMessage || channel.returned;
                    if (message) {
                        message.bodySize = bodySize;
                        message.properties = properties;
                        message._rawBytes = new Uint8Array(bodySize);
                        if (bodySize === 0)
                            channel.onMessageReady(message);
                    }
                    else {
                        this.logger?.warn("Header frame but no message");
                    }
                    break;
                }
                case Type.BODY: {
                    const message = channel.delivery || channel.getMessage || channel.returned;
                    if (message && message._rawBytes) {
                        const bodyPart = new Uint8Array(view.buffer, view.byteOffset + i, frameSize);
                        message._rawBytes.set(bodyPart, message.bodyPos);
                        message.bodyPos += frameSize;
                        i += frameSize;
                        if (message.bodyPos === message.bodySize)
                            channel.onMessageReady(message);
                    }
                    else {
                        this.logger?.warn("Body frame but no message");
                    }
                    break;
                }
                case Type.HEARTBEAT: {
                    const heartbeat = new Uint8Array([Type.HEARTBEAT, 0, 0, 0, 0, 0, 0, End.CODE]);
                    this.send(heartbeat).catch((err) => this.logger?.warn("Error while sending heartbeat", err));
                    break;
                }
                default:
                    this.logger?.error("invalid frame type:", type);
                    i += frameSize;
            }
            i += 1;
        }
    }
}

function isPlainBody(data) {
    return data === null || typeof data === "string" || data instanceof Uint8Array || data instanceof ArrayBuffer;
}

function toBytes(data) {
    if (data === null)
        return new Uint8Array(0);
    if (data instanceof Uint8Array)
        return data;
    if (data instanceof ArrayBuffer)
        return new Uint8Array(data);
    if (typeof data === "string")
        return new TextEncoder().encode(data);
    return new Uint8Array(data);
}
function serializeAndEncode(parsers, coders, body, properties, defaults) {
    const props = { ...properties };
    if (defaults?.contentType && !props.contentType)
        props.contentType = defaults.contentType;
    if (defaults?.contentEncoding && !props.contentEncoding)
        props.contentEncoding = defaults.contentEncoding;
    let bytes;
    if (props.contentType) {
        const parser = parsers[props.contentType];
        if (parser) {
            bytes = parser.serialize(body, props);
        }
        else if (isPlainBody(body)) {
            bytes = toBytes(body);
        }
        else {
            throw new Error(`No parser registered for content-type "${props.contentType}" and body is not a string/Buffer/Uint8Array.`);
        }
    }
    else if (isPlainBody(body)) {
        bytes = toBytes(body);
    }
    else {
        throw new Error("Cannot serialize body: no contentType specified and body is not a string/Buffer/Uint8Array. " +
            "Set contentType or configure a defaultContentType on the session.");
    }
    if (props.contentEncoding) {
        const coder = coders[props.contentEncoding];
        if (!coder) {
            throw new Error(`No coder registered for content-encoding "${props.contentEncoding}".`);
        }
        return coder.encode(bytes, props).then((encoded) => ({ body: encoded, properties: props }));
    }
    return { body: bytes, properties: props };
}
function decodeAndParse(parsers, coders, body, properties) {
    if (properties.contentEncoding) {
        const coder = coders[properties.contentEncoding];
        if (!coder) {
            throw new Error(`No coder registered for content-encoding "${properties.contentEncoding}".`);
        }
        return coder.decode(body, properties).then((decoded) => {
            if (properties.contentType) {
                const parser = parsers[properties.contentType];
                if (parser)
                    return parser.parse(decoded, properties);
            }
            return decoded;
        });
    }
    if (properties.contentType) {
        const parser = parsers[properties.contentType];
        if (parser)
            return parser.parse(body, properties);
    }
    return body;
}
async function decodeMessage(msg, parsers, coders) {
    if (msg._rawBytes) {
        msg.body = await decodeAndParse(parsers, coders, msg._rawBytes, msg.properties);
    }
}

class AMQPSubscription {
    constructor(consumer, def) {
        this.consumer = consumer;
        this.def = def;
    }
    get channel() {
        return this.consumer.channel;
    }
    get consumerTag() {
        return this.consumer.tag;
    }
    async cancel() {
        this.onCancel?.();
        const ch = this.consumer.channel;
        try {
            await this.consumer.cancel();
        }
        catch {
        }
        if (!ch.closed) {
            try {
                await ch.close();
            }
            catch {
            }
        }
    }
    setConsumer(consumer) {
        this.consumer = consumer;
    }
}
class AMQPGeneratorSubscription extends AMQPSubscription {
    constructor() {
        super(...arguments);
        this.stopped = false;
    }
    setConsumer(consumer) {
        super.setConsumer(consumer);
        this.consumerReady?.();
        delete this.consumerReady;
    }
    async cancel() {
        this.stopped = true;
        this.consumerReady?.();
        delete this.consumerReady;
        await super.cancel();
    }
    async *[Symbol.asyncIterator]() {
        const autoAck = !this.def.consumeParams.noAck && !this.def.manualAck;
        const requeueOnNack = this.def.requeueOnNack ?? true;
        let prev;
        while (!this.stopped) {
            const consumer = this.consumer;
            if (!(consumer instanceof AMQPGeneratorConsumer)) {
                throw new Error("Cannot iterate messages on a callback-based subscription");
            }
            let decodeError;
            try {
                for await (const msg of consumer.messages) {
                    if (this.stopped)
                        return;
                    if (autoAck)
                        await prev?.ack();
                    if (this.def.parsers || this.def.coders) {
                        try {
                            await decodeMessage(msg, this.def.parsers ?? {}, this.def.coders ?? {});
                        }
                        catch (err) {
                            if (autoAck) {
                                await msg.nack(requeueOnNack);
                                continue;
                            }
                            decodeError = err;
                            throw err;
                        }
                    }
                    prev = msg;
                    yield msg;
                }
            }
            catch (err) {
                if (err === decodeError)
                    throw err;
            }
            prev = undefined;
            if (!this.stopped) {
                await new Promise((resolve) => {
                    this.consumerReady = resolve;
                });
            }
        }
    }
}

class AMQPQueue {
    constructor(session, name) {
        this.subscriptions = new Set();
        this.session = session;
        this.name = name;
    }
    async publish(body, options = {}) {
        const { confirm = true, mandatory = false, ...properties } = options;
        const defaults = {};
        if (this.session.defaultContentType)
            defaults.contentType = this.session.defaultContentType;
        if (this.session.defaultContentEncoding)
            defaults.contentEncoding = this.session.defaultContentEncoding;
        const encoded = await serializeAndEncode(this.session.parsers ?? {}, this.session.coders ?? {}, body, properties, defaults);
        if (encoded.properties.deliveryMode === undefined)
            encoded.properties.deliveryMode = 2;
        if (confirm) {
            const ch = await this.session.getConfirmChannel();
            await ch.basicPublish("", this.name, encoded.body, encoded.properties, mandatory);
        }
        else {
            await this.session.withOpsChannel(async (ch) => {
                await ch.basicPublish("", this.name, encoded.body, encoded.properties, mandatory);
            });
        }
        return this;
    }
    async subscribe(params, callback) {
        if (typeof params === "function")
            [callback, params] = [params, undefined];
        const { prefetch, requeueOnNack = true, manualAck = false, ...consumeParams } = params ?? {};
        const autoAck = !consumeParams.noAck && !manualAck;
        if (autoAck || manualAck)
            consumeParams.noAck = false;
        const parsers = this.session.parsers;
        const coders = this.session.coders;
        const logger = this.session.logger;
        const wrappedCallback = wrapCallbackWithAutoDecodeAndAck(callback, {
            parsers,
            coders,
            autoAck,
            requeueOnNack,
            logger,
        });
        const def = {
            queueName: this.name,
            consumeParams,
            requeueOnNack,
            manualAck,
            ...(wrappedCallback !== undefined && { callback: wrappedCallback }),
            ...(prefetch !== undefined && { prefetch }),
            ...(parsers && { parsers }),
            ...(coders && { coders }),
        };
        const consumer = await this.openConsumer(def);
        const sub = wrappedCallback ? new AMQPSubscription(consumer, def) : new AMQPGeneratorSubscription(consumer, def);
        this.subscriptions.add(sub);
        sub.onCancel = () => {
            this.subscriptions.delete(sub);
        };
        return sub;
    }
    async get(params) {
        const msg = await this.session.withOpsChannel((ch) => ch.basicGet(this.name, params));
        if (!msg)
            return null;
        if (this.session.parsers || this.session.coders) {
            await decodeMessage(msg, this.session.parsers ?? {}, this.session.coders ?? {});
        }
        return msg;
    }
    async consumeOne(options = {}) {
        const { timeout } = options;
        const ch = await this.session.openChannel();
        await ch.basicQos(1);
        return new Promise((resolve, reject) => {
            let timer;
            let settled = false;
            let consumer;
            const cleanup = async () => {
                if (timer)
                    clearTimeout(timer);
                try {
                    if (consumer && !this.session.closed)
                        await consumer.cancel();
                }
                catch {
                }
                if (!ch.closed)
                    await ch.close().catch(() => { });
            };
            const finish = async (settle) => {
                if (settled)
                    return;
                settled = true;
                await cleanup();
                settle();
            };
            ch.basicConsume(this.name, { noAck: false }, async (msg) => {
                try {
                    if (settled) {
                        await msg.nack(true).catch(() => { });
                        return;
                    }
                    if (this.session.parsers || this.session.coders) {
                        await decodeMessage(msg, this.session.parsers ?? {}, this.session.coders ?? {});
                    }
                    await msg.ack();
                    await finish(() => resolve(msg));
                }
                catch (err) {
                    await finish(() => reject(err));
                }
            })
                .then((c) => {
                consumer = c;
                if (settled) {
                    void cleanup();
                    return;
                }
                c.wait()
                    .then(() => void finish(() => reject(new Error("consumeOne: consumer closed before delivery"))))
                    .catch((err) => void finish(() => reject(err)));
                if (timeout !== undefined) {
                    timer = setTimeout(() => void finish(() => reject(new Error(`consumeOne timed out after ${timeout}ms`))), timeout);
                }
            })
                .catch((err) => void finish(() => reject(err)));
        });
    }
    async bind(exchange, routingKey = "", args = {}) {
        const exchangeName = typeof exchange === "string" ? exchange : exchange.name;
        await this.session.withOpsChannel((ch) => ch.queueBind(this.name, exchangeName, routingKey, args));
        return this;
    }
    async unbind(exchange, routingKey = "", args = {}) {
        const exchangeName = typeof exchange === "string" ? exchange : exchange.name;
        await this.session.withOpsChannel((ch) => ch.queueUnbind(this.name, exchangeName, routingKey, args));
        return this;
    }
    async purge() {
        return this.session.withOpsChannel((ch) => ch.queuePurge(this.name));
    }
    async delete(params) {
        const result = await this.session.withOpsChannel((ch) => ch.queueDelete(this.name, params));
        await this.cancelAll();
        this.session.removeQueue(this.name);
        return result;
    }
    async recover() {
        for (const sub of this.subscriptions) {
            try {
                const consumer = await this.openConsumer(sub.def);
                sub.setConsumer(consumer);
                this.session.logger?.debug(`Recovered consumer for queue: ${this.name}`);
            }
            catch (err) {
                const error = err instanceof Error ? err : new Error(String(err));
                this.session.recoverFailed(this.name, error);
            }
        }
    }
    async cancelAll() {
        const subs = [...this.subscriptions];
        this.subscriptions.clear();
        await Promise.all(subs.map((sub) => sub.cancel()));
    }
    async openConsumer(def) {
        const ch = await this.session.openChannel();
        if (def.prefetch !== undefined) {
            await ch.basicQos(def.prefetch);
        }
        return def.callback
            ? ch.basicConsume(def.queueName, def.consumeParams, def.callback)
            : ch.basicConsume(def.queueName, def.consumeParams);
    }
}
function wrapCallbackWithAutoDecodeAndAck(callback, opts) {
    if (!callback)
        return undefined;
    if (!opts.autoAck) {
        return async (msg) => {
            try {
                if (opts.parsers || opts.coders)
                    await decodeMessage(msg, opts.parsers ?? {}, opts.coders ?? {});
                await callback(msg);
            }
            catch (err) {
                opts.logger?.error("Consumer callback error", err);
            }
        };
    }
    return async (msg) => {
        try {
            if (opts.parsers || opts.coders)
                await decodeMessage(msg, opts.parsers ?? {}, opts.coders ?? {});
            await callback(msg);
            await msg.ack();
        }
        catch {
            await msg.nack(opts.requeueOnNack);
        }
    };
}

class AMQPExchange {
    constructor(session, name) {
        this.session = session;
        this.name = name;
    }
    async publish(body, options = {}) {
        const { confirm = true, routingKey = "", mandatory = false, ...properties } = options;
        const defaults = {};
        if (this.session.defaultContentType)
            defaults.contentType = this.session.defaultContentType;
        if (this.session.defaultContentEncoding)
            defaults.contentEncoding = this.session.defaultContentEncoding;
        const encoded = await serializeAndEncode(this.session.parsers ?? {}, this.session.coders ?? {}, body, properties, defaults);
        if (encoded.properties.deliveryMode === undefined)
            encoded.properties.deliveryMode = 2;
        if (confirm) {
            const ch = await this.session.getConfirmChannel();
            await ch.basicPublish(this.name, routingKey, encoded.body, encoded.properties, mandatory);
        }
        else {
            await this.session.withOpsChannel(async (ch) => {
                await ch.basicPublish(this.name, routingKey, encoded.body, encoded.properties, mandatory);
            });
        }
        return this;
    }
    async bind(source, routingKey = "", args = {}) {
        const sourceName = typeof source === "string" ? source : source.name;
        await this.session.withOpsChannel((ch) => ch.exchangeBind(this.name, sourceName, routingKey, args));
        return this;
    }
    async unbind(source, routingKey = "", args = {}) {
        const sourceName = typeof source === "string" ? source : source.name;
        await this.session.withOpsChannel((ch) => ch.exchangeUnbind(this.name, sourceName, routingKey, args));
        return this;
    }
    async delete(params) {
        await this.session.withOpsChannel((ch) => ch.exchangeDelete(this.name, params));
    }
}

const DIRECT_REPLY_TO = "amq.rabbitmq.reply-to";
class AMQPRPCClient {
    constructor(session) {
        this.ch = null;
        this.correlationId = 0;
        this.pending = new Map();
        this.closed = false;
        this.session = session;
    }
    async start() {
        if (this.closed)
            throw new Error("RPC client is closed");
        if (this.ch && !this.ch.closed)
            return this;
        const ch = await this.session.openChannel();
        try {
            const parsers = this.session.parsers;
            const coders = this.session.coders;
            await ch.basicConsume(DIRECT_REPLY_TO, { noAck: true }, async (msg) => {
                const id = msg.properties.correlationId;
                if (id === undefined)
                    return;
                const entry = this.pending.get(id);
                if (!entry)
                    return;
                this.pending.delete(id);
                if (entry.timer)
                    clearTimeout(entry.timer);
                try {
                    if (parsers || coders)
                        await decodeMessage(msg, parsers ?? {}, coders ?? {});
                    entry.resolve(msg);
                }
                catch (err) {
                    entry.reject(err instanceof Error ? err : new Error(String(err)));
                }
            });
            this.ch = ch;
            return this;
        }
        catch (err) {
            ch.close().catch(() => { });
            throw err;
        }
    }
    async call(queue, body, { timeout, ...properties } = {}) {
        if (this.closed)
            throw new Error("RPC client is closed");
        if (!this.ch || this.ch.closed)
            throw new Error("RPC client not started, call start() first");
        const ch = this.ch;
        const correlationId = (++this.correlationId).toString(36);
        const defaults = {};
        if (this.session.defaultContentType)
            defaults.contentType = this.session.defaultContentType;
        if (this.session.defaultContentEncoding)
            defaults.contentEncoding = this.session.defaultContentEncoding;
        const encoded = await serializeAndEncode(this.session.parsers ?? {}, this.session.coders ?? {}, body, properties, defaults);
        return new Promise((resolve, reject) => {
            let timer;
            if (timeout !== undefined && timeout > 0) {
                timer = setTimeout(() => {
                    this.pending.delete(correlationId);
                    reject(new Error(`No response received in ${timeout}ms`));
                }, timeout);
            }
            this.pending.set(correlationId, { resolve, reject, timer });
            ch.basicPublish("", queue, encoded.body, {
                ...encoded.properties,
                replyTo: DIRECT_REPLY_TO,
                correlationId,
            }).catch((err) => {
                const entry = this.pending.get(correlationId);
                if (!entry)
                    return;
                this.pending.delete(correlationId);
                if (entry.timer)
                    clearTimeout(entry.timer);
                entry.reject(err);
            });
        });
    }
    async recover() {
        if (this.closed)
            return;
        this.rejectAllPending(new Error("RPC client reconnecting"));
        this.ch = null;
        await this.start();
    }
    async close() {
        if (this.closed)
            return;
        this.closed = true;
        this.session.untrackRPCClient(this);
        this.rejectAllPending(new Error("RPC client closed"));
        const ch = this.ch;
        this.ch = null;
        if (ch && !ch.closed) {
            await ch.close();
        }
    }
    rejectAllPending(err) {
        for (const [id, entry] of this.pending) {
            if (entry.timer)
                clearTimeout(entry.timer);
            entry.reject(err);
            this.pending.delete(id);
        }
    }
}

class AMQPRPCServer {
    constructor(session) {
        this.subscription = null;
        this.session = session;
    }
    async start(queue, handler, prefetch = 1) {
        if (this.subscription)
            throw new Error("RPC server already started");
        const q = await this.session.queue(queue);
        this.subscription = await q.subscribe({ prefetch, noAck: false, requeueOnNack: false }, async (msg) => {
            const { replyTo, correlationId } = msg.properties;
            if (!replyTo) {
                await msg.nack(false);
                return;
            }
            const result = await handler(msg);
            const replyProps = {};
            if (correlationId !== undefined)
                replyProps.correlationId = correlationId;
            const defaults = {};
            if (this.session.defaultContentType)
                defaults.contentType = this.session.defaultContentType;
            if (this.session.defaultContentEncoding)
                defaults.contentEncoding = this.session.defaultContentEncoding;
            const encoded = await serializeAndEncode(this.session.parsers ?? {}, this.session.coders ?? {}, result, replyProps, defaults);
            await msg.channel.basicPublish("", replyTo, encoded.body, encoded.properties);
        });
        return this;
    }
    async close() {
        const sub = this.subscription;
        if (!sub)
            return;
        this.subscription = null;
        await sub.cancel();
    }
}

class AMQPSession {
    get closed() {
        return this.client.closed;
    }
    get logger() {
        return this.client.logger;
    }
    constructor(client, options) {
        this.queues = new Map();
        this.rpcClients = new Set();
        this.reconnectAttempts = 0;
        this.reconnecting = false;
        this.stopped = false;
        this.opsChannel = null;
        this.confirmChannel = null;
        this.opsChannelPromise = null;
        this.confirmChannelPromise = null;
        this.opsLock = Promise.resolve();
        this.client = client;
        if (options?.parsers)
            this.parsers = options.parsers;
        if (options?.coders)
            this.coders = options.coders;
        if (options?.defaultContentType)
            this.defaultContentType = options.defaultContentType;
        if (options?.defaultContentEncoding)
            this.defaultContentEncoding = options.defaultContentEncoding;
        if (options?.beforeConnect)
            this.beforeConnect = options.beforeConnect;
        if (options?.onconnect)
            this.onconnect = options.onconnect;
        if (options?.ondisconnect)
            this.ondisconnect = options.ondisconnect;
        if (options?.onfailed)
            this.onfailed = options.onfailed;
        if (options?.onrecoverfailed)
            this.onrecoverfailed = options.onrecoverfailed;
        if (options?.onreturn)
            this.onreturn = options.onreturn;
        if (options?.onblocked)
            this.client.onblocked = options.onblocked;
        if (options?.onunblocked)
            this.client.onunblocked = options.onunblocked;
        this.options = {
            reconnectInterval: options?.reconnectInterval ?? 1000,
            maxReconnectInterval: options?.maxReconnectInterval ?? 30000,
            backoffMultiplier: options?.backoffMultiplier ?? 2,
            maxRetries: options?.maxRetries ?? 0,
        };
        this.client.ondisconnect = (err) => {
            this.client.logger?.warn(`${this.logTag()}: disconnected`);
            this.opsChannel = null;
            this.confirmChannel = null;
            this.opsChannelPromise = null;
            this.confirmChannelPromise = null;
            this.ondisconnect?.(err);
            if (!this.stopped && !this.reconnecting) {
                void this.reconnectLoop();
            }
        };
    }
    logTag() {
        return this.client.name ? `AMQPSession[${this.client.name}]` : "AMQPSession";
    }
    static async connect(url, options) {
        const u = new URL(url);
        let client;
        if (u.protocol === "ws:" || u.protocol === "wss:") {
            const { AMQPWebSocketClient } = await Promise.resolve().then(function () { return amqpWebsocketClient; });
            const vhost = options?.vhost ?? "/";
            const username = decodeURIComponent(u.username) || "guest";
            const password = decodeURIComponent(u.password) || "guest";
            const name = options?.name ?? u.searchParams.get("name") ?? undefined;
            const heartbeat = options?.heartbeat ?? numericParam(u.searchParams.get("heartbeat"));
            const frameMax = options?.frameMax ?? numericParam(u.searchParams.get("frameMax"));
            const channelMax = options?.channelMax ?? numericParam(u.searchParams.get("channelMax"));
            const wsUrl = `${u.protocol}//${u.host}${u.pathname}${u.search}`;
            const init = {
                url: wsUrl,
                vhost,
                username,
                password,
                logger: options?.logger ?? null,
            };
            if (name)
                init.name = name;
            if (heartbeat !== undefined)
                init.heartbeat = heartbeat;
            if (frameMax !== undefined)
                init.frameMax = frameMax;
            if (channelMax !== undefined)
                init.channelMax = channelMax;
            client = new AMQPWebSocketClient(init);
        }
        else {
            const { AMQPClient } = await import('./amqp-socket-client.js');
            const overrides = {
                name: options?.name,
                heartbeat: options?.heartbeat?.toString(),
                frameMax: options?.frameMax?.toString(),
                channelMax: options?.channelMax?.toString(),
            };
            for (const [key, val] of Object.entries(overrides)) {
                if (val !== undefined)
                    u.searchParams.set(key, val);
            }
            client = new AMQPClient(u.toString(), options?.tlsOptions, options?.logger);
        }
        await options?.beforeConnect?.();
        await client.connect();
        const session = new AMQPSession(client, options);
        client.logger?.info(`${session.logTag()}: connected`);
        options?.onconnect?.(session);
        return session;
    }
    getOpsChannel() {
        if (this.opsChannel && !this.opsChannel.closed)
            return Promise.resolve(this.opsChannel);
        if (this.opsChannelPromise)
            return this.opsChannelPromise;
        this.opsChannelPromise = this.client.channel().then((ch) => {
            this.wireReturnHandler(ch);
            this.wireManagedChannelErrorHandler(ch);
            this.opsChannel = ch;
            this.opsChannelPromise = null;
            return ch;
        });
        this.opsChannelPromise.catch(() => {
            this.opsChannelPromise = null;
        });
        return this.opsChannelPromise;
    }
    wireReturnHandler(ch) {
        if (!this.onreturn)
            return;
        ch.onReturn = (msg) => {
            const handler = this.onreturn;
            if (!handler)
                return;
            void (async () => {
                try {
                    if (this.parsers || this.coders) {
                        await decodeMessage(msg, this.parsers ?? {}, this.coders ?? {});
                    }
                    handler(msg);
                }
                catch (err) {
                    const error = err instanceof Error ? err : new Error(String(err));
                    this.client.logger?.warn(`${this.logTag()}: onreturn handler failed:`, error.message);
                }
            })();
        };
    }
    wireManagedChannelErrorHandler(ch) {
        ch.onerror = (reason) => {
            this.client.logger?.debug(`${this.logTag()}: channel ${ch.id} closed (${reason}); will reopen on next use`);
        };
    }
    withOpsChannel(fn) {
        const result = this.opsLock.then(async () => {
            const ch = await this.getOpsChannel();
            return fn(ch);
        });
        this.opsLock = result.catch(() => { });
        return result;
    }
    getConfirmChannel() {
        if (this.confirmChannel && !this.confirmChannel.closed)
            return Promise.resolve(this.confirmChannel);
        if (this.confirmChannelPromise)
            return this.confirmChannelPromise;
        this.confirmChannelPromise = this.client.channel().then(async (ch) => {
            await ch.confirmSelect();
            this.wireReturnHandler(ch);
            this.wireManagedChannelErrorHandler(ch);
            this.confirmChannel = ch;
            this.confirmChannelPromise = null;
            return ch;
        });
        this.confirmChannelPromise.catch(() => {
            this.confirmChannelPromise = null;
        });
        return this.confirmChannelPromise;
    }
    openChannel() {
        return this.client.channel();
    }
    removeQueue(name) {
        this.queues.delete(name);
    }
    recoverFailed(queueName, error) {
        this.client.logger?.warn(`${this.logTag()}: failed to recover queue ${queueName}:`, error.message);
        this.onrecoverfailed?.(queueName, error);
    }
    async queue(name, options) {
        if (name !== "") {
            const cached = this.queues.get(name);
            if (cached)
                return cached;
        }
        const { arguments: queueArguments, ...declarationParams } = options ?? {};
        return this.withOpsChannel(async (ch) => {
            const res = await ch.queueDeclare(name, declarationParams, queueArguments);
            if (name === "")
                return new AMQPQueue(this, res.name);
            const existing = this.queues.get(res.name);
            if (existing)
                return existing;
            const q = new AMQPQueue(this, res.name);
            this.queues.set(res.name, q);
            return q;
        });
    }
    async exchange(name, type, options) {
        const { arguments: exchangeArguments, ...declarationParams } = options ?? {};
        return this.withOpsChannel(async (ch) => {
            await ch.exchangeDeclare(name, type, declarationParams, exchangeArguments);
            return new AMQPExchange(this, name);
        });
    }
    async directExchange(name = "amq.direct", options) {
        if (name === "")
            return new AMQPExchange(this, "");
        return this.exchange(name, "direct", options);
    }
    fanoutExchange(name = "amq.fanout", options) {
        return this.exchange(name, "fanout", options);
    }
    topicExchange(name = "amq.topic", options) {
        return this.exchange(name, "topic", options);
    }
    headersExchange(name = "amq.headers", options) {
        return this.exchange(name, "headers", options);
    }
    async rpcCall(queue, body, options) {
        const rpc = new AMQPRPCClient(this);
        await rpc.start();
        try {
            return await rpc.call(queue, body, options);
        }
        finally {
            await rpc.close();
        }
    }
    async rpcClient() {
        const rpc = new AMQPRPCClient(this);
        await rpc.start();
        this.rpcClients.add(rpc);
        return rpc;
    }
    untrackRPCClient(rpc) {
        this.rpcClients.delete(rpc);
    }
    async rpcServer(queue, handler, prefetch) {
        const server = new AMQPRPCServer(this);
        await server.start(queue, handler, prefetch);
        return server;
    }
    async stop(reason) {
        this.stopped = true;
        this.cancelWait();
        await Promise.all([...this.queues.values()].map((queue) => queue.cancelAll()));
        this.queues.clear();
        for (const rpc of this.rpcClients) {
            rpc.close().catch(() => { });
        }
        this.rpcClients.clear();
        delete this.client.ondisconnect;
        if (!this.client.closed) {
            await this.client.close(reason);
        }
    }
    async reconnectLoop() {
        if (this.reconnecting)
            return;
        this.reconnecting = true;
        while (!this.stopped) {
            this.reconnectAttempts++;
            if (this.options.maxRetries > 0 && this.reconnectAttempts > this.options.maxRetries) {
                this.stopped = true;
                this.client.logger?.error(`${this.logTag()}: reconnect gave up`);
                this.onfailed?.(new Error(`Max reconnection attempts (${this.options.maxRetries}) reached`));
                continue;
            }
            const delay = Math.min(this.options.reconnectInterval * Math.pow(this.options.backoffMultiplier, this.reconnectAttempts - 1), this.options.maxReconnectInterval);
            this.client.logger?.debug(`Reconnecting in ${delay}ms (attempt ${this.reconnectAttempts})`);
            await this.waitBeforeRetry(delay);
            if (this.stopped)
                continue;
            try {
                await this.beforeConnect?.();
                await this.client.connect();
            }
            catch (err) {
                const error = err instanceof Error ? err : new Error(String(err));
                this.client.logger?.warn("AMQP-Client reconnect error:", error.message);
                continue;
            }
            this.reconnectAttempts = 0;
            await this.recoverQueues();
            if (this.stopped || this.client.closed)
                continue;
            this.client.logger?.info(`${this.logTag()}: reconnected`);
            this.onconnect?.(this);
            break;
        }
        this.reconnecting = false;
    }
    waitBeforeRetry(ms) {
        return new Promise((resolve) => {
            this.reconnectResolve = resolve;
            this.reconnectTimer = setTimeout(resolve, ms);
        });
    }
    cancelWait() {
        clearTimeout(this.reconnectTimer);
        this.reconnectTimer = undefined;
        this.reconnectResolve?.();
        this.reconnectResolve = undefined;
    }
    async recoverQueues() {
        if (this.client.closed)
            return;
        for (const queue of this.queues.values()) {
            await queue.recover();
        }
        for (const rpc of this.rpcClients) {
            try {
                await rpc.recover();
                this.client.logger?.debug("Recovered RPC client");
            }
            catch (err) {
                const error = err instanceof Error ? err : new Error(String(err));
                this.client.logger?.warn("Failed to recover RPC client:", error.message);
            }
        }
    }
}
function numericParam(value) {
    if (value === null)
        return undefined;
    const n = Number(value);
    return Number.isFinite(n) ? n : undefined;
}

class AMQPWebSocketClient extends AMQPBaseClient {
    constructor(url, vhost = "/", username = "guest", password = "guest", name, frameMax = MIN_FRAME_SIZE, heartbeat = 0, logger) {
        let channelMax = 0;
        if (typeof url === "object") {
            vhost = url.vhost ?? vhost;
            username = url.username ?? username;
            password = url.password ?? password;
            name = url.name ?? name;
            frameMax = url.frameMax ?? frameMax;
            heartbeat = url.heartbeat ?? heartbeat;
            channelMax = url.channelMax ?? channelMax;
            logger = url.logger ?? logger;
            url = url.url;
        }
        super(vhost, username, password, name, AMQPWebSocketClient.platform(), frameMax, heartbeat, channelMax, logger);
        this.framePos = 0;
        this.frameSize = 0;
        this.url = url;
        this.frameBuffer = new Uint8Array(frameMax);
    }
    connect() {
        this.framePos = 0;
        this.frameSize = 0;
        this.channels = [new AMQPChannel(this, 0)];
        const socket = new WebSocket(this.url);
        this.socket = socket;
        socket.binaryType = "arraybuffer";
        socket.onmessage = this.handleMessage.bind(this);
        return new Promise((resolve, reject) => {
            this.connectPromise = [resolve, reject];
            socket.addEventListener("close", reject);
            socket.addEventListener("error", reject);
            socket.addEventListener("open", () => {
                socket.addEventListener("error", (ev) => {
                    if (!this.closed) {
                        const err = new AMQPError(ev.toString(), this);
                        this.closed = true;
                        this.channels.forEach((ch) => ch?.setClosed(err));
                        this.channels = [new AMQPChannel(this, 0)];
                        this.onerror(err);
                        this.ondisconnect?.(err);
                        this.socket = undefined;
                    }
                });
                socket.addEventListener("close", (ev) => {
                    const clientClosed = this.closed;
                    this.closed = true;
                    if (!(ev.wasClean && clientClosed)) {
                        const err = new AMQPError(`connection not cleanly closed (${ev.code})`, this);
                        this.channels.forEach((ch) => ch?.setClosed(err));
                        this.channels = [new AMQPChannel(this, 0)];
                        this.onerror(err);
                        if (!clientClosed) {
                            this.ondisconnect?.(err);
                        }
                    }
                    else {
                        this.channels.forEach((ch) => ch?.setClosed());
                        this.channels = [new AMQPChannel(this, 0)];
                    }
                    this.socket = undefined;
                });
                socket.send(new Uint8Array([65, 77, 81, 80, 0, 0, 9, 1]));
            });
        });
    }
    send(bytes) {
        return new Promise((resolve, reject) => {
            if (this.socket) {
                try {
                    this.socket.send(bytes);
                    resolve();
                }
                catch (err) {
                    this.closeSocket();
                    reject(err);
                }
            }
            else {
                reject(new AMQPError("Socket not connected", this));
            }
        });
    }
    closeSocket() {
        this.closed = true;
        if (this.socket)
            this.socket.close();
        this.socket = undefined;
    }
    handleMessage(event) {
        const buf = event.data;
        const bufView = new DataView(buf);
        let bufPos = 0;
        while (bufPos < buf.byteLength) {
            if (this.frameSize === 0) {
                if (this.framePos !== 0) {
                    const len = 7 - this.framePos;
                    this.frameBuffer.set(new Uint8Array(buf, bufPos, len), this.framePos);
                    this.frameSize = new DataView(this.frameBuffer.buffer).getInt32(bufPos + 3) + 8;
                    this.framePos += len;
                    bufPos += len;
                    continue;
                }
                if (bufPos + 3 + 4 > buf.byteLength) {
                    const len = buf.byteLength - bufPos;
                    this.frameBuffer.set(new Uint8Array(buf, bufPos), this.framePos);
                    this.framePos += len;
                    break;
                }
                this.frameSize = bufView.getInt32(bufPos + 3) + 8;
                if (buf.byteLength - bufPos >= this.frameSize) {
                    const view = new AMQPView(buf, bufPos, this.frameSize);
                    this.parseFrames(view);
                    bufPos += this.frameSize;
                    this.frameSize = 0;
                    continue;
                }
            }
            const leftOfFrame = this.frameSize - this.framePos;
            const copyBytes = Math.min(leftOfFrame, buf.byteLength - bufPos);
            this.frameBuffer.set(new Uint8Array(buf, bufPos, copyBytes), this.framePos);
            this.framePos += copyBytes;
            bufPos += copyBytes;
            if (this.framePos === this.frameSize) {
                const view = new AMQPView(this.frameBuffer.buffer, this.frameBuffer.byteOffset, this.frameSize);
                this.parseFrames(view);
                this.frameSize = this.framePos = 0;
            }
        }
    }
    static platform() {
        if (typeof navigator !== "undefined")
            return navigator.userAgent;
        else
            return `${process.release.name} ${process.version} ${process.platform} ${process.arch}`;
    }
}

var amqpWebsocketClient = /*#__PURE__*/Object.freeze({
    __proto__: null,
    AMQPWebSocketClient: AMQPWebSocketClient,
    AMQPBaseClient: AMQPBaseClient,
    AMQPChannel: AMQPChannel,
    AMQPConsumer: AMQPConsumer,
    AMQPError: AMQPError,
    AMQPMessage: AMQPMessage,
    AMQPView: AMQPView,
    VERSION: VERSION,
    AMQPSession: AMQPSession
});

export { AMQPBaseClient, AMQPChannel, AMQPConsumer, AMQPError, AMQPMessage, AMQPSession, AMQPView, AMQPWebSocketClient, VERSION };
