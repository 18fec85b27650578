"""Shapes of classes and functions: parts instead of layers, stories that fit on a page.

Each exception is named with its figure and a reason; one that has become better leaves its table.
"""

from __future__ import annotations

from tests.tidy.shapes import (
    Class,
    Function,
    bases_of,
    classes,
    declares,
    depth,
    functions,
    own_calls,
)

DEPTH_MAX = 2
LINES_MAX = 60
PARAMETERS_MAX = 7

# Base classes that say what every implementation offers: a class below one counts from there. In
# all tables the last part of the module's name stands before the class, so that it can be moved.
CONTRACTS = frozenset(
    {
        "contracts.Channel",
        "contracts.Confirmer",
        "contracts.Consumer",
        "contracts.Dirty",
        "contracts.Exchange",
        "contracts.MessageStore",
        "contracts.Queue",
        "channel.ChannelHost",
        "output.OutputOwner",
        "control_schema.Arguments",
        "errors.AMQPError",
        "errors.ClientError",
        "errors.HardError",
        "errors.SoftError",
        "subscriptions.Subscription",
        "turn.Task",
        "views.View",
    }
)

# Class -> (depth, why it is that deep).
DEEP: dict[str, tuple[int, str]] = {}

HOT = "on the way of every message: a call more would cost"
# Function -> (lines at most, why it stands whole). The file's name stands before it.
LONG = {
    "store.pyx: BodyStore.freeze": (70, "one round's list of operations, in their order"),
    "channel.pyx: Channel.route": (70, HOT),
    "classic.pyx: ClassicQueue.publish": (70, HOT),
    "classic.pyx: ClassicQueue.serve_consumers": (80, HOT),
    "completion.py: bash": (70, "is mostly the text of a script"),
    "frame_parser.pyx: FrameParser.receive": (70, HOT),
    "consuming.py: basic_consume": (70, "checks in the order in which clients see their errors"),
    "defining.py: DefiningVHost.declare_queue": (
        90,
        "checks in the order in which clients see their errors",
    ),
    "node.py: node_metrics": (110, "is a table, a row per metric"),
    "persister.pyx: Persister.finish": (80, "the end of a round, step by step in its order"),
    "scan.pyx: visit": (70, "one loop over counters, compiled for each kind of object"),
    "spans.pyx: read_settled": (80, "one loop over a file's entries, without Python"),
    "stream_reader.pyx: StreamReader.work": (70, HOT),
}

METHOD = "the arguments of an AMQP method by their own names"
FLAGS = "the flags and arguments of a declare by their own names"
# Function -> (parameters at most, why so many).
WIDE = {
    "channel.pyx: Channel.__init__": (9, "is given the parts of its connection"),
    "classic.pyx: ClassicQueue.__init__": (12, FLAGS),
    "consuming.py: basic_consume": (9, METHOD),
    "contracts.pyx: Consumer.__init__": (9, METHOD),
    "declared.pyx: DeclaredQueue.__init__": (9, FLAGS),
    "defining.py: DefiningVHost.__init__": (14, "is given the rooms that a virtual host connects"),
    "defining.py: DefiningVHost.declare_queue": (9, FLAGS),
    "exchanges.py: exchange_declare": (10, METHOD),
    "holding.pyx: Holding.__init__": (11, "is given the parts that hold messages back"),
    "persister.pyx: Persister.__init__": (8, "a parameter per setting of the store"),
    "policy_keys.py: _key": (8, "a row of the table, each column with a default"),
    "queues.py: queue_declare": (9, METHOD),
    "rules.py: change_binding": (8, METHOD),
    "scan.pyx: scan": (8, "is given the columns of one kind of object"),
    "connection.pyx: Connection.__init__": (
        11,
        "is given by each listener what differs between them",
    ),
    "sound_search.pyx: set_aside": (
        8,
        "a stretch of a file: what, where, and up to which position",
    ),
    "stamping.pyx: Stamper.__init__": (8, "what the messages of a load are made of"),
    "stream.pyx: StreamQueue.__init__": (12, FLAGS),
    "stream_arguments.py: reading_of": (9, "a parameter per argument of a stream's consumer"),
}


def name_of(one: Class) -> str:
    return f"{one.module.rpartition('.')[2]}.{one.name}"


def key_of(function: Function) -> str:
    """What a function has in the tables: no folder, so that a file can be moved."""
    return f"{function.where.rpartition(':')[0].rpartition('/')[2]}: {function.name}"


def test_every_contract_is_a_class() -> None:
    assert {name_of(one) for one in classes().values()} >= CONTRACTS


def test_no_class_stands_on_more_than_one_other_below_its_contract() -> None:
    known = frozenset(one.key for one in classes().values() if name_of(one) in CONTRACTS)
    depths = {name_of(one): depth(one, known) for one in classes().values()}
    deep = {name: found for name, found in depths.items() if found > DEPTH_MAX}
    deeper = {name: found for name, found in deep.items() if found > DEEP.get(name, (0, ""))[0]}
    assert not deeper, f"more than {DEPTH_MAX} below a contract, or deeper than before: {deeper}"
    assert not DEEP.keys() - deep.keys(), "take what is flat now out of the table"


def test_a_function_fits_on_a_page() -> None:
    long = {key_of(one): one.lines for one in functions() if one.lines > LINES_MAX}
    grown = {name: lines for name, lines in long.items() if lines > LONG.get(name, (0, ""))[0]}
    assert not grown, f"more than {LINES_MAX} lines, or longer than before: {grown}"
    assert not LONG.keys() - long.keys(), "take what is short now out of the table"


def test_a_function_takes_few_parameters() -> None:
    wide = {key_of(one): one.parameters for one in functions() if one.parameters > PARAMETERS_MAX}
    grown = {name: count for name, count in wide.items() if count > WIDE.get(name, (0, ""))[0]}
    assert not grown, f"more than {PARAMETERS_MAX} parameters, or more than before: {grown}"
    assert not WIDE.keys() - wide.keys(), "take what has few now out of the table"


def test_a_compiled_class_declares_every_method_that_it_calls_on_itself() -> None:
    """A method that only a subclass somewhere defines is a hook, and is declared where it is
    called."""
    undeclared = [
        f"{one.where}: {one.name} calls self.{name}()"
        for one in classes().values()
        for name in one.calls
        if not declares(one, name)
    ]
    assert not undeclared, "\n".join(undeclared)


def test_every_reason_is_one() -> None:
    for table in (DEEP, LONG, WIDE):
        for name, (_, reason) in table.items():
            assert len(reason.split()) > 3, name


def test_the_shapes_of_compiled_code_are_read_as_they_are() -> None:
    """The test of the tests: a part of the product whose figures were counted by hand."""
    text = '''
cdef class Base:
    cdef int seen

    cdef int hook(self, int a, str b="x(,)") except -1:
        """Two
        lines."""
        raise NotImplementedError


cdef class Low(Base):
    def run(self, *, bint on=False):
        self.hook(1)
        return self.other(
            2)
'''
    found = own_calls("made_up", text)
    assert [one.name for one in found] == ["Base", "Low"]
    assert found[0].members == {"seen", "hook"}
    assert found[1].bases == ["Base"]
    assert found[1].calls == {"hook": 13, "other": 14}
    assert isinstance(found[1], Class)
    connection = classes()["broker.wire.connection.Connection"]
    parser = "broker.wire.frame_parser.FrameParser"
    assert [base.key for base in bases_of(connection)] == [parser]
