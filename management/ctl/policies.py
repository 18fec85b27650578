"""Commands on policies, operator policies and parameters."""

from __future__ import annotations

from management.ctl.table import (
    Call,
    Command,
    Parameter,
    Rows,
    enter,
    json_object,
    json_value,
    name,
    whole,
)

# Policies.

for _word, _verb, _what in (
    ("policy", "policy", "policy"),
    ("operator_policy", "operator-policy", "operator policy override"),
):
    enter(
        Command(
            name=f"set_{_word}",
            group="policies",
            help=f"Sets an {_what}." if _what[0] == "o" else f"Sets a {_what}.",
            examples=(
                f"set_{_word} limits '^jobs\\.' '{{\"max-length\": 10000}}' --apply-to queues",
            ),
            verb=f"{_verb}.put",
            parameters=(
                name(_what),
                Parameter(name="pattern", help="Regular expression (RE2) of names."),
                Parameter(name="definition", help="A JSON object.", read=json_object),
                Parameter(name="--priority", help="The highest one counts.", read=whole, default=0),
                Parameter(
                    name="--apply-to",
                    help="queues, exchanges, all, classic_queues, quorum_queues or streams.",
                    default="all",
                ),
            ),
            says=f'Setting {_what} "{{name}}" for pattern "{{pattern}}" to "{{definition}}" with '
            'priority "{priority}" for vhost "{vhost}" ...',
            vhost=True,
        ),
        Command(
            name=f"clear_{_word}",
            group="policies",
            help=f"Removes an {_what}." if _what[0] == "o" else f"Removes a {_what}.",
            examples=(f"clear_{_word} limits",),
            verb=f"{_verb}.delete",
            parameters=(name(_what, names=_verb.replace("policy", "policies")),),
            says=f'Clearing {_what} "{{name}}" on vhost "{{vhost}}" ...',
            vhost=True,
        ),
    )

# Parameters.

_COMPONENT = Parameter(name="component", help="Component, such as vhost-limits.")
_VALUE = Parameter(name="value", help="A JSON value.", read=json_value)
enter(
    Command(
        name="set_parameter",
        group="parameters",
        help="Sets a parameter of a component in a virtual host.",
        examples=("set_parameter vhost-limits limits '{\"max-queues\": 100}'",),
        verb="parameter.put",
        parameters=(_COMPONENT, name("parameter"), _VALUE),
        says='Setting runtime parameter "{name}" for component "{component}" to "{value}" in '
        'vhost "{vhost}" ...',
        vhost=True,
    ),
    Command(
        name="clear_parameter",
        group="parameters",
        help="Removes a parameter of a component.",
        examples=("clear_parameter vhost-limits limits",),
        verb="parameter.delete",
        parameters=(_COMPONENT, name("parameter")),
        says='Clearing runtime parameter "{name}" for component "{component}" on vhost '
        '"{vhost}" ...',
        vhost=True,
    ),
    Command(
        name="set_global_parameter",
        group="parameters",
        help="Sets a global parameter.",
        examples=("set_global_parameter contact '\"ops@example.com\"'",),
        verb="global-parameter.put",
        parameters=(name("parameter"), _VALUE),
        says='Setting global runtime parameter "{name}" to "{value}" ...',
    ),
    Command(
        name="clear_global_parameter",
        group="parameters",
        help="Removes a global parameter.",
        examples=("clear_global_parameter contact",),
        verb="global-parameter.delete",
        parameters=(name("parameter", names="global-parameters"),),
        says='Clearing global runtime parameter "{name}" ...',
    ),
)


# Shovels and upstreams are parameters of components.


def _bridge(word: str, component: str, what: str) -> None:
    """The three commands of LavinMQ on one component."""

    async def add(call: Call) -> None:
        await call.ask(
            "parameter.put",
            component=component,
            vhost=call.vhost,
            name=call.options["name"],
            value=call.options["definition"],
        )

    async def delete(call: Call) -> None:
        await call.ask(
            "parameter.delete", component=component, vhost=call.vhost, name=call.options["name"]
        )

    async def show(call: Call) -> Rows:
        found = await call.rows("parameters", vhost=call.vhost, component=component)
        return Rows(("name", "value"), [[row["name"], row["value"]] for row in found])

    enter(
        Command(
            name=f"list_{word}",
            also=("list_shovels",) if word == "shovel" else (),
            group="parameters",
            help=f"Lists {what}s of a virtual host.",
            examples=(f"list_{word}",),
            verb="list",
            run=show,
            says=f"Listing {what}s for vhost {{vhost}} ...",
            vhost=True,
        ),
        Command(
            name=f"add_{word}",
            group="parameters",
            help=_ADDED[word],
            examples=(_EXAMPLES[word],),
            verb="parameter.put",
            parameters=(
                name(what),
                Parameter(name="definition", help="A JSON object.", read=json_object),
            ),
            run=add,
            says=f'Adding {what} "{{name}}" in vhost "{{vhost}}" ...',
            vhost=True,
        ),
        Command(
            name=f"delete_{word}",
            group="parameters",
            help=f"Removes a {what}.",
            examples=(f"delete_{word} copy",),
            verb="parameter.delete",
            parameters=(name(what),),
            run=delete,
            says=f'Deleting {what} "{{name}}" in vhost "{{vhost}}" ...',
            vhost=True,
        ),
    )


_ADDED = {
    "shovel": "Stores a shovel and starts it, in the name of an administrator.",
    "federation": "Stores a federation upstream, which policies may name.",
}
_EXAMPLES = {
    "shovel": 'add_shovel copy \'{"src-uri": "amqp://", "src-queue": "jobs", '
    '"dest-uri": "amqp://user:password@far", "dest-queue": "jobs"}\'',
    "federation": 'add_federation copy \'{"uri": "amqp://far"}\'',
}
_bridge("shovel", "shovel", "shovel")
_bridge("federation", "federation-upstream", "federation upstream")
