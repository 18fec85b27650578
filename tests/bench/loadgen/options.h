/* What --operation repeats instead of publishing. */
enum { NO_OPERATION, OPEN_CONNECTION, OPEN_CHANNEL, CONSUME, BIND, DECLARE };

static const char *const operations[] = {"",     "connection", "channel", "consume",
                                         "bind", "declare",    NULL};

/* What the command line may say. */
static struct {
    const char *host, *user, *password, *vhost, *name, *cpu_of, *probe, *confirm_on, *type,
        *index;
    int port, publishers, consumers, queues, fanout, body, persistent, window, ack_every, prefetch,
        flush, keep, durable, tls, websocket, operation, ids;
    double rate, duration, warmup, patience;
    uint64_t count, in_flight, warmup_count;
} opt = {
    .host = "127.0.0.1",
    .user = "guest",
    .password = "guest",
    .vhost = "/",
    .name = "bench",
    .cpu_of = "",
    .confirm_on = "",
    .type = "",
    .index = "",
    .port = 5672,
    .publishers = 1,
    .consumers = 1,
    .queues = 1,
    .body = 16,
    .durable = -1,
    .duration = 5,
    .patience = 30,
};

static const struct option long_options[] = {{"host", 1, 0, 'h'},
                                             {"port", 1, 0, 'p'},
                                             {"user", 1, 0, 'u'},
                                             {"password", 1, 0, 'w'},
                                             {"vhost", 1, 0, 'v'},
                                             {"name", 1, 0, 'n'},
                                             {"publishers", 1, 0, 'P'},
                                             {"consumers", 1, 0, 'C'},
                                             {"queues", 1, 0, 'Q'},
                                             {"fanout", 1, 0, 'F'},
                                             {"body", 1, 0, 'b'},
                                             {"persistent", 0, 0, 'D'},
                                             {"confirm", 1, 0, 'W'},
                                             {"ack", 1, 0, 'A'},
                                             {"prefetch", 1, 0, 'q'},
                                             {"flush", 0, 0, 'f'},
                                             {"rate", 1, 0, 'r'},
                                             {"duration", 1, 0, 'd'},
                                             {"count", 1, 0, 'c'},
                                             {"warmup", 1, 0, 'm'},
                                             {"in-flight", 1, 0, 'i'},
                                             {"cpu-of", 1, 0, 'o'},
                                             {"keep", 0, 0, 'k'},
                                             {"patience", 1, 0, 't'},
                                             {"durable", 1, 0, 'U'},
                                             {"probe", 1, 0, 'B'},
                                             {"confirm-on", 1, 0, 'O'},
                                             {"type", 1, 0, 'y'},
                                             {"index", 1, 0, 'x'},
                                             {"ids", 0, 0, 'I'},
                                             {"tls", 0, 0, 'S'},
                                             {"websocket", 0, 0, 'X'},
                                             {"operation", 1, 0, 'T'},
                                             {"help", 0, 0, 'H'},
                                             {"warmup-count", 1, 0, 'M'},
                                             {0, 0, 0, 0}};

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
    "  --confirm-on MODE                          queues declared with this x-confirm-on\n"
    "  --type TYPE --index KEYS                   queues declared with this x-queue-type and "
    "x-stream-index\n"
    "  --ids                                      a message_id of 16 digits in each message\n"
    "  --tls | --websocket                        the port speaks TLS (its certificate is not "
    "checked), or WebSocket\n"
    "  --operation NAME                           repeats instead of publishing: connection (open "
    "with a channel and\n"
    "                                             close), channel, consume (and cancel), bind, "
    "declare (and delete)\n"
    "  --ack K --prefetch P                       acknowledge every K deliveries (0 = auto-ack)\n"
    "  --flush                                    one publish per write, as clients do that flush "
    "each publish\n"
    "  --rate R                                   publishes per second over all publishers, or "
    "operations (0 = as\n"
    "                                             fast as possible)\n"
    "  --duration S | --count N                   length of the measured part (5 s)\n"
    "  --warmup S                                 seconds before it that are not measured (0)\n"
    "  --warmup-count N --probe FILE              or as many messages; report by how much the u64 "
    "in\n"
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

static int all_queues; /* --queues or --fanout */

static void parse_options(int argc, char **argv)
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
        case 'O':
            opt.confirm_on = optarg;
            break;
        case 'y':
            opt.type = optarg;
            break;
        case 'x':
            opt.index = optarg;
            break;
        case 'I':
            opt.ids = 1;
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
        case 'S':
            opt.tls = 1;
            break;
        case 'X':
            opt.websocket = 1;
            break;
        case 'T':
            for (int i = 1; operations[i]; i++)
                if (!strcmp(operations[i], optarg))
                    opt.operation = i;
            if (!opt.operation)
                die("--operation is one of connection, channel, consume, bind, declare");
            break;
        default:
            fputs(usage, stderr);
            exit(c == 'H' ? 0 : 2);
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
}
