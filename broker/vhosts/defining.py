"""The definitions of a vhost: exchanges, queues and bindings, and the one place where they
change.

`declare_queue`, `bind` and the like check what is asked and then call `_apply` with a change in the
form of an AMQP method. `_apply` changes memory and is also what start-up calls for every entry of
the journal; whatever is durable is written to the journal on the way. Nothing here waits: who needs
a change on disk asks the persister for a round.
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from broker.fields.codec import octets
from broker.kernel import clock
from broker.kernel.contracts import Topology
from broker.kernel.recording import Recorder
from broker.kernel.wide_dict import WideDict
from broker.queues import types as queue_types
from broker.queues.types import MessageQueue
from broker.routing.binding import Binding
from broker.routing.exchange import BoundExchange
from broker.routing.types import TYPES
from broker.schema import arguments as argument_table
from broker.schema.errors import AccessRefused, NotFound, PreconditionFailed, describe
from broker.schema.message_history import HISTORY
from broker.settings.bounds import DEFAULTS, Bounds
from broker.store.bodies.settings import BodySettings
from broker.store.bodies.store import BodyStore
from broker.store.commit.persister import Persister
from broker.store.directory.journal import Journal
from broker.store.directory.journal_compaction import JournalCompaction
from broker.vhosts.applied_policies import AppliedPolicies
from broker.vhosts.argument_memory import ArgumentMemory, binding_memory
from broker.vhosts.bindings import Bindings
from broker.vhosts.changes import (
    NO_ARGUMENTS,
    QUEUE_DECLARED_BY,
    QUEUE_FLOW,
    binding_change,
    binding_of,
    declared_by,
    entry,
)
from broker.vhosts.dead_letters import DeadLetters
from broker.vhosts.declaring import (
    check_exchange_type,
    check_name,
    check_room,
    check_same_exchange,
    check_same_queue,
    locked,
    server_name,
)
from broker.vhosts.policies import Policies, effective, move
from broker.vhosts.routes import Routes
from broker.vhosts.slices import Slices
from broker.vhosts.unbinding import Unbinding
from broker.vhosts.unused_queues import UnusedQueues
from broker.vhosts.weak import weakly

if TYPE_CHECKING:
    from broker.wire.connection import Connection

DIRECTORIES = ("queues", "transient", "bodies")
"""What is in the directory of a vhost, besides what features have there."""

log = logging.getLogger("leveret.vhost")

KEPT_IN_ANY_CASE = 63
"""Characters that fit a short string of 255 bytes, whatever they are."""
REMOVING = frozenset({"queue.delete", "exchange.delete", "queue.unbind", "exchange.unbind"})


class DefiningVHost:
    """With what is defined. `directory` holds the journal and the queues; `next_incarnation` gives
    the ids that are never used twice.

    `emit(event, data)` tells what happened to those who listen; `features` are
    `broker.features.interface.Feature`.
    """

    def __init__(
        self,
        name: str,
        incarnation: int,
        directory: str,
        *,
        persister: Persister,
        turn: Any,
        topology: Topology,
        policies: Policies,
        next_incarnation: Callable[[], int],
        emit: Callable[[str, dict[str, Any]], None],
        later: Callable[[float, Callable[[], None]], Any],
        default_queue_type: str = "classic",
        features: Sequence[Any] = (),
        body_settings: BodySettings | None = None,
        bounds: Bounds = DEFAULTS,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.directory = directory
        self.default_queue_type = default_queue_type
        self.exchanges: dict[str, BoundExchange] = {}
        self.queues: WideDict[str, MessageQueue] = WideDict()
        self.bodies = BodyStore(persister, f"{directory}/bodies", incarnation, body_settings)
        self.queue_limit: Callable[[], int | None] = lambda: None
        self.argument_memory = ArgumentMemory(name, bounds.arguments)
        self._bindings = Bindings(self.exchanges, self.queues, self.argument_memory)
        self.routes = Routes(self.exchanges, self.queues, self._bindings)
        # Kept, because each queue has it: a method that is bound anew is an object of 64 bytes.
        self._address_dead_letter = DeadLetters(self.exchanges, self.routes).address
        self.slices = Slices(later)
        self._unbinding = Unbinding(self._bindings, self.slices, weakly(self._delete_unbound))
        self._ended: set[Any] = set()
        """Connections that ended and still have exclusive queues."""
        self._persister = persister
        self._turn = turn
        self._topology = topology
        self._policies = AppliedPolicies(
            name, policies, self.exchanges, self.queues, topology, weakref.proxy(self)
        )
        self._next_incarnation = next_incarnation
        self._emit = emit
        self._later = later
        self._features = features
        self._told_of_exchanges = [
            each.exchange_configured for each in features if each.overrides("exchange_configured")
        ]
        self._told_of_queues = [
            each.queue_configured for each in features if each.overrides("queue_configured")
        ]
        self._bounds = bounds
        self._started = False
        self._journal: Journal | None = None
        self._compaction: JournalCompaction | None = None
        self._replaying = False
        self._unused = UnusedQueues(later, weakly(self._delete_unused))
        self.recorder = Recorder()

    @property
    def queues_directory(self) -> str:
        return f"{self.directory}/queues"

    @property
    def transient_directory(self) -> str:
        """Queues that do not survive: removed as a whole at start."""
        return f"{self.directory}/transient"

    def exchange_configured(self, exchange: BoundExchange) -> None:
        """Tells the features what holds for an exchange now."""
        if not self._replaying:
            for told in self._told_of_exchanges:
                told(self, exchange)

    def queue_configured(self, queue: MessageQueue) -> None:
        """Tells the features what holds for a queue now."""
        if not self._replaying:
            for told in self._told_of_queues:
                told(self, queue)

    @property
    def topology_version(self) -> int:
        """Rises with every change that can alter a route."""
        return self._topology.version

    # -- applying changes --------------------------------------------------------------------------

    def _change(
        self,
        method: str,
        change: dict[str, Any],
        *,
        durable: bool,
        incarnation: int = 0,
        owner: Any = None,
    ) -> None:
        """Carries a change out, and writes it to the journal if it is durable.

        What is added goes to the journal once it is there: what cannot be carried out is neither
        there now nor met by the next start. What is removed goes first: half gone, it must not
        come back. Raises PreconditionFailed for what the journal could not give back, whether it
        is durable or not.
        """
        try:
            written = entry(method, change, incarnation)
        except ValueError as error:
            raise PreconditionFailed(f"{method} cannot be kept: {error}") from None
        journal = self._journal if durable else None
        if method in REMOVING and journal is not None:
            journal.append(written)
        self._apply(method, change, incarnation, owner)
        if method not in REMOVING and journal is not None:
            journal.append(written)
        # Behind a kill the journal says which auto-delete exchanges a deletion was to take with it.
        if self._compaction is not None and self._unbinding.is_idle:
            self._compaction.consider()

    def _apply(
        self, method: str, change: dict[str, Any], incarnation: int, owner: Any = None
    ) -> None:
        self._topology.changed()
        match method:
            case "queue.declare":
                self._add_queue(change, incarnation, owner)
            case QUEUE_FLOW.name:
                flowing = self.queues[change["queue"]]
                if change["active"]:
                    flowing.resume()
                else:
                    flowing.pause()
            case QUEUE_DECLARED_BY.name:
                self.queues[change["queue"]].declared_by = sys.intern(change["user"])
            case "queue.delete":
                queue = self.queues.get(change["queue"])
                if queue is not None:
                    self._delete_queue(queue)
            case "exchange.declare":
                declared = TYPES[change["type"]](
                    change["exchange"],
                    durable=change["durable"],
                    auto_delete=change["auto_delete"],
                    internal=change["internal"],
                    arguments=change["arguments"],
                )
                declared.incarnation = incarnation
                self._add_exchange(declared)
            case "exchange.delete":
                self._delete_exchange(change["exchange"])
            case "queue.bind" | "exchange.bind":
                self._bindings.add(binding_of(method, change))
            case "queue.unbind" | "exchange.unbind":
                exchange = self._bindings.remove(binding_of(method, change))
                if exchange is not None:
                    self._unbinding.look_at(exchange)

    # -- exchanges ---------------------------------------------------------------------------------

    def _add_exchange(self, exchange: BoundExchange) -> None:
        exchange.bounds = self._bounds
        self.exchanges[exchange.name] = exchange
        self.argument_memory.take(exchange.arguments)
        if self._replaying:
            return
        try:
            self._policies.to_exchange(exchange)
            self.exchange_configured(exchange)
        except Exception:
            self._delete_exchange(exchange.name)
            raise

    def exchange(self, name: str) -> BoundExchange:
        """The exchange. Raises NotFound."""
        found = self.exchanges.get(name)
        if found is None:
            raise NotFound(f"no {describe('exchange', name, self.name)}")
        return found

    def declare_exchange(
        self,
        name: str,
        type: str = "direct",
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: dict[str, Any] | None = None,
    ) -> bool:
        """Declares an exchange; True if it is new. Raises PreconditionFailed or AccessRefused."""
        resource = describe("exchange", name, self.name)
        arguments = arguments or {}
        if not name:
            raise AccessRefused("operation not permitted on the default exchange")
        check_exchange_type(resource, type)
        current = self.exchanges.get(name)
        if current is not None:
            check_same_exchange(
                resource,
                current,
                type=type,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments,
            )
            return False
        check_name("exchange", name)
        argument_table.check("exchange", arguments, resource)
        TYPES[type].check_arguments(arguments)
        check_room(resource, self.name, len(self.exchanges), self._bounds.exchanges, "exchanges")
        self.argument_memory.check(resource, argument_table.memory_of(arguments))
        change = {
            "exchange": name,
            "type": type,
            "durable": durable,
            "auto_delete": auto_delete,
            "internal": internal,
            "arguments": arguments,
        }
        self._change(
            "exchange.declare", change, durable=durable, incarnation=self._next_incarnation()
        )
        self._emit("exchange.created", {"vhost": self.name, "name": name, "type": type})
        return True

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> bool:
        """Deletes an exchange; False if there is none. Raises PreconditionFailed (in use) or
        AccessRefused."""
        if not name:
            raise AccessRefused("operation not permitted on the default exchange")
        if name.startswith("amq."):
            raise AccessRefused(
                f"deletion of system {describe('exchange', name, self.name)} not allowed"
            )
        exchange = self.exchanges.get(name)
        if exchange is None:
            return False
        if if_unused and any(self._bindings.listed(name)):
            raise PreconditionFailed(f"{describe('exchange', name, self.name)} in use")
        self._change("exchange.delete", {"exchange": name}, durable=exchange.durable)
        return True

    def _delete_unbound(self, exchange: BoundExchange) -> None:
        self._change("exchange.delete", {"exchange": exchange.name}, durable=exchange.durable)

    def _delete_exchange(self, name: str) -> None:
        exchange = self.exchanges.pop(name, None)
        if exchange is None:
            return
        self.argument_memory.give_back(exchange.arguments)
        move("exchange", exchange.policy, None)
        for feature in self._features:
            feature.exchange_deleted(self, exchange)
        self._emit("exchange.deleted", {"vhost": self.name, "name": name, "exchange": exchange})
        self._unbinding.begin("exchange", name, exchange)

    # -- queues ------------------------------------------------------------------------------------

    def queue(self, name: str, connection: Connection | None = None) -> MessageQueue:
        """The queue. Raises NotFound, or ResourceLocked if it is exclusive to another
        connection."""
        found = self._living_queue(name)
        if found is None:
            raise NotFound(f"no {describe('queue', name, self.name)}")
        self.check_owner(found, connection)
        return found

    def new_name(self, given: str) -> str:
        """The name of a queue that a client declares anew: checked if it gave one, made if it did
        not. Permissions are asked for this name. Raises AccessRefused or PreconditionFailed."""
        if not given:
            return server_name()
        check_name("queue", given)
        return given

    def has_queue(self, name: str) -> bool:
        """Whether a declaration of this name would find a queue."""
        return self._living_queue(name) is not None

    def asked_for(self, name: str, connection: Connection | None = None) -> MessageQueue:
        """The queue, for a passive declaration: that counts as use (x-expires). Raises as `queue`
        does."""
        found = self.queue(name, connection)
        found.used_at = clock.now()
        return found

    def _living_queue(self, name: str) -> MessageQueue | None:
        """The queue; an exclusive one whose connection has ended goes now, if it is still there."""
        found = self.queues.get(name)
        if found is None or found.owner is None or found.owner not in self._ended:
            return found
        self._change("queue.delete", {"queue": name}, durable=False)
        return None

    def check_owner(self, queue: MessageQueue, connection: Connection | None) -> None:
        if queue.exclusive and queue.owner is not connection:
            raise locked(describe("queue", queue.name, self.name))

    def declare_queue(
        self,
        name: str,
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        owner: Any = None,
        by_default: bool = True,
        is_server_named: bool = False,
        user: str | None = None,
    ) -> tuple[MessageQueue, bool]:
        """Declares a queue; (queue, whether it is new). Where no type is named, it is of the
        vhost's default type, unless `by_default` is off or that type cannot be so: then it is
        classic.
        `is_server_named`: the broker made the name. `user` declares it, where it is a user.

        Raises PreconditionFailed, ResourceLocked or AccessRefused with RabbitMQ's texts.
        """
        arguments = arguments or {}
        resource = describe("queue", name, self.name)
        current = self._living_queue(name)
        if current is not None:
            self.check_owner(current, owner)
            check_same_queue(
                resource,
                current,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=arguments,
                default_type=self.default_queue_type,
            )
            current.used_at = clock.now()
            return current, False
        if not is_server_named:
            check_name("queue", name)
        if (
            by_default
            and "x-queue-type" not in arguments
            and self.default_queue_type != "classic"
            and durable
            and not exclusive
            and not auto_delete
        ):
            arguments = {**arguments, "x-queue-type": self.default_queue_type}
        queue_types.check(
            resource,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=arguments,
        )
        limit = self.queue_limit()
        if limit is not None and len(self.queues) >= limit:
            raise PreconditionFailed(
                f"cannot declare {resource}: "
                f"queue limit in vhost '{self.name}' ({limit}) is reached"
            )
        check_room(resource, self.name, len(self.queues), self._bounds.queues, "queues")
        self.argument_memory.check(resource, argument_table.memory_of(arguments))
        # An exclusive queue ends with its connection, so there is nothing about it to survive.
        durable = durable and not exclusive
        incarnation = self._next_incarnation()
        change = {
            "queue": name,
            "durable": durable,
            "exclusive": exclusive,
            "auto_delete": auto_delete,
            "arguments": arguments,
        }
        self._change(
            "queue.declare",
            change,
            durable=durable,
            incarnation=incarnation,
            owner=owner if exclusive else None,
        )
        if user and len(octets(user)) <= 255:
            self._change(*declared_by(name, user), durable=durable)
        self._emit("queue.created", {"vhost": self.name, "name": name})
        return self.queues[name], True

    def declare_own(self, name: str, arguments: dict[str, Any]) -> MessageQueue:
        """A durable queue that the broker itself has, under a name that clients cannot declare."""
        if name not in self.queues:
            change = {
                "queue": name,
                "durable": True,
                "exclusive": False,
                "auto_delete": False,
                "arguments": arguments,
            }
            incarnation = self._next_incarnation()
            self._change("queue.declare", change, durable=True, incarnation=incarnation)
            self._emit("queue.created", {"vhost": self.name, "name": name})
        return self.queues[name]

    def set_arguments(self, queue: MessageQueue, arguments: dict[str, Any]) -> None:
        """Of such a queue, until the next start."""
        self.argument_memory.give_back(queue.arguments)
        queue.arguments.update(arguments)
        for name in queue.arguments.keys() - arguments.keys():
            del queue.arguments[name]
        self.argument_memory.take(queue.arguments)
        queue.reconfigure(effective("queue", queue.arguments, queue.policy))
        self.queue_configured(queue)

    def _add_queue(self, change: dict[str, Any], incarnation: int, owner: Any) -> None:
        queue: MessageQueue = queue_types.of(change["arguments"]).make(
            self._turn,
            self._persister,
            self.queues_directory if change["durable"] else self.transient_directory,
            self.name,
            change["queue"],
            incarnation,
            durable=change["durable"],
            exclusive=change["exclusive"],
            auto_delete=change["auto_delete"],
            arguments=change["arguments"],
            owner=owner,
            bounds=self._bounds,
        )
        queue.later = self._later
        queue.bodies = self.bodies
        queue.dead_letter = self._address_dead_letter
        if queue.auto_delete:
            queue.unused = self._delete_unused
        self.queues[queue.name] = queue
        self.argument_memory.take(change["arguments"])
        if owner is not None:
            owner.exclusive_queues.add(queue.name)
        if self._replaying:
            return
        try:
            self._policies.to_queue(queue)
            self.queue_configured(queue)
            if self._started:
                self._start_timers(queue)
        except Exception:
            self._delete_queue(queue)
            raise

    def _start_timers(self, queue: MessageQueue) -> None:
        if queue.messages_ready:
            queue.wake()
        self.watch_use(queue)

    def watch_use(self, queue: MessageQueue) -> None:
        """Starts the time anew after which an unused queue goes, as x-expires says now."""
        if self._started:
            self._unused.watch(queue)

    def _delete_unused(self, queue: MessageQueue) -> None:
        if self.queues.get(queue.name) is queue:
            self.delete_queue(queue.name, owner=queue.owner)

    def delete_queue(
        self, name: str, *, if_unused: bool = False, if_empty: bool = False, owner: Any = None
    ) -> int:
        """Deletes a queue; how many ready messages went with it, 0 if there is none.

        Raises PreconditionFailed (in use, not empty) or ResourceLocked.
        """
        queue = self._living_queue(name)
        if queue is None:
            return 0
        self.check_owner(queue, owner)
        if name == HISTORY and self.recorder.on:
            raise PreconditionFailed(
                f"{describe('queue', name, self.name)} is written while a policy has 'history'; "
                "change the policies first"
            )
        queue.deliver_pending()
        if if_unused and queue.consumer_count:
            raise PreconditionFailed(f"{describe('queue', name, self.name)} in use")
        if if_empty and queue.messages_ready:
            raise PreconditionFailed(f"{describe('queue', name, self.name)} not empty")
        count: int = queue.messages_ready
        self._change("queue.delete", {"queue": name}, durable=queue.durable)
        return count

    def delete_exclusive(self, owner: Any) -> None:
        """A connection has ended: its exclusive queues go. Until they are gone they are locked, and
        who asks for one by its name finds it gone."""
        self._ended.add(owner)
        self.slices.begin(self._delete_exclusive(owner))

    def _delete_exclusive(self, owner: Any) -> Iterator[None]:
        try:
            # A list of 250,000 names takes a long turn to make, and more to be walked over.
            while owner.exclusive_queues:
                try:
                    self._living_queue(owner.exclusive_queues.pop())
                except Exception:
                    log.exception("an exclusive queue of a connection that ended stays")
                yield
        finally:
            self._ended.discard(owner)

    def set_paused(self, queue: MessageQueue, paused: bool) -> bool:
        """Stops the deliveries of a queue or resumes them; False if that was so already."""
        if queue.paused == paused:
            return False
        change = {"queue": queue.name, "active": not paused}
        self._change(QUEUE_FLOW.name, change, durable=queue.durable)
        return True

    def _delete_queue(self, queue: MessageQueue) -> None:
        self._forget_queue(queue)
        self._unbinding.begin("queue", queue.name)

    def _forget_queue(self, queue: MessageQueue) -> None:
        consumers = list(queue.consumers)
        del self.queues[queue.name]
        self.argument_memory.give_back(queue.arguments)
        if queue.owner is not None:
            queue.owner.exclusive_queues.discard(queue.name)
        move("queue", queue.policy, None)
        queue.delete()
        self._unused.forget(queue)
        self.slices.begin(_cancelled(consumers))
        if not self._replaying:
            self._emit("queue.deleted", {"vhost": self.name, "name": queue.name, "queue": queue})

    # -- bindings ----------------------------------------------------------------------------------

    def bind(
        self,
        source: str,
        destination: str,
        destination_type: str,
        routing_key: str,
        arguments: dict[str, Any] | None = None,
    ) -> bool:
        """Binds a queue or an exchange to an exchange; False if that binding is there. Raises
        NotFound, AccessRefused or PreconditionFailed."""
        exchange, end = self._ends_of(source, destination, destination_type)
        # Many bindings have the same ends: each would keep a copy of their names.
        binding = Binding(
            exchange.name, end.name, destination_type, routing_key, arguments or NO_ARGUMENTS
        )
        exchange.check(binding)
        if self._bindings.has(binding):
            return False
        there, most = self._bindings.count, self._bounds.bindings
        if arguments or there >= most:
            resource = f"a binding of '{source[:100]}'"
            check_room(resource, self.name, there, most, "bindings")
            self.argument_memory.check(resource, binding_memory(binding, exchange))
        durable = exchange.durable and end.durable
        if durable or arguments or len(routing_key) > KEPT_IN_ANY_CASE:
            method, change = binding_change(binding, "bind")
            self._change(method, change, durable=durable)
        else:
            # As `_change` does, of what the journal does not get and could give back.
            self._topology.changed()
            self._bindings.add(binding)
        self._emit(
            "binding.created", {"vhost": self.name, "source": source, "destination": destination}
        )
        return True

    def unbind(
        self,
        source: str,
        destination: str,
        destination_type: str,
        routing_key: str,
        arguments: dict[str, Any] | None = None,
    ) -> bool:
        """Removes a binding; False if it, or one of its ends, is not there. Raises AccessRefused
        for the default exchange."""
        if not source or (destination_type == "exchange" and not destination):
            raise AccessRefused("operation not permitted on the default exchange")
        binding = Binding(source, destination, destination_type, routing_key, arguments or {})
        if not self._bindings.has(binding):
            return False
        method, change = binding_change(binding, "unbind")
        self._change(method, change, durable=self._bindings.is_durable(binding))
        return True

    def _ends_of(
        self, source: str, destination: str, destination_type: str
    ) -> tuple[BoundExchange, MessageQueue | BoundExchange]:
        """The exchange and what is to be bound to it. Raises as `bind` does."""
        if not source or (destination_type == "exchange" and not destination):
            raise AccessRefused("operation not permitted on the default exchange")
        end: MessageQueue | BoundExchange | None
        if destination_type == "queue":
            end = self._living_queue(destination)
            if end is None:
                raise NotFound(f"no {describe('queue', destination, self.name)}")
        else:
            end = self.exchange(destination)
        return self.exchange(source), end

    def has_binding(self, binding: Binding) -> bool:
        """Whether there is such a binding."""
        return self._bindings.has(binding)

    @property
    def binding_count(self) -> int:
        """Bindings that exchanges have, those of the default exchange not counted."""
        return self._bindings.count

    def bindings(
        self,
        source: str | None = None,
        destination: str | None = None,
        destination_type: str | None = None,
    ) -> Iterator[Binding]:
        """All bindings, those of a source, or those to a destination; with the implicit ones of the
        default exchange."""
        return self._bindings.listed(source, destination, destination_type)

    @property
    def has_leaving(self) -> bool:
        """Whether exchanges still have bindings to what is deleted; `bindings` leaves them out."""
        return bool(self._bindings.leaving)

    def is_leaving(self, binding: Binding) -> bool:
        """Whether this binding of an exchange leads to what is deleted."""
        return self._bindings.is_leaving(binding)


def _cancelled(consumers: list[Any]) -> Iterator[None]:
    """Tells the consumers of a deleted queue, one at a step, but those that have left meanwhile."""
    for consumer in consumers:
        if consumer.active:
            consumer.channel.connection.cancel_consumer(consumer)
        yield
