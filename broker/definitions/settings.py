"""Parameters and policies in a definitions document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from broker.access import BadSetting, Parameter
from broker.access.parameters import LIMITS, SHOVEL, check_parameter
from broker.access.patterns import BadPattern, Pattern
from broker.access.secrets import without_secrets
from broker.definitions.document import LeftOut, Row, check_value
from broker.definitions.users import FOREIGN_PATTERN
from broker.schema import shovel_keys
from broker.schema.policy_keys import KEYS
from broker.schema.upstream_keys import UPSTREAM, UPSTREAM_SET
from broker.vhosts.pattern_steps import PatternSteps
from broker.vhosts.policies import Policy

if TYPE_CHECKING:
    from broker.definitions.plan import Plan, Undo

INACTIVE = "stored; this broker does not run it"


class Settings:
    """Readers of parameters, global parameters, policies and operator policies."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._broker = plan.broker
        self._steps: dict[tuple[str, bool], PatternSteps] = {}
        """Of a vhost's policies, and its operator policies, as the import would leave them."""

    # -- parameters --------------------------------------------------------------------------------

    def parameter(self, row: Row) -> None:
        component = row.text("component")
        if "value" not in row.fields:
            raise ValueError("'value' is missing")
        value = row.fields["value"]
        check_value(value, "value")
        vhost = self._plan.tenants.vhost_of(row)
        if component == "policy":
            raise ValueError("policies may not be set using this method")
        if component == "operator_policy":
            if not isinstance(value, dict):
                raise ValueError("value is not an object")
            fields = {**value, "vhost": vhost, "name": row.name()}
            self._policy(row._replace(fields={**row.fields, **fields}), operator=True)
        elif component == LIMITS:
            self._plan.tenants.vhost_limits(row, vhost, value)
        else:
            self._stored(row, Parameter(component, vhost, row.name(), value))

    def _stored(self, row: Row, parameter: Parameter) -> None:
        plan, parameters = self._plan, self._broker.access.parameters
        key = parameter.component, parameter.vhost, parameter.name
        if not plan.is_new(row, key, {"value": parameter.value}):
            return
        bridge = self._bridge(parameter.component)
        old = parameters.get(*key)
        if bridge is not None:
            owner = old.owner if old is not None and old.owner is not None else plan.owner
            if old is not None and without_secrets(old.value) == parameter.value:
                # An export without secrets does not take them away.
                parameter = msgspec.structs.replace(parameter, value=old.value)
            check_parameter(parameter)
            try:
                parameter = bridge.checked(parameter, owner, imported=True)
            except BadSetting as error:
                # Such as a file of certificates of the machine that it comes from.
                raise LeftOut(str(error)) from None
        else:
            check_parameter(parameter)
        if old is None:
            there = parameters.count(parameter.vhost)
            plan.check_room("parameters", parameter.vhost, there, parameters.most)
        if old is not None and without_secrets(old.value) == parameter.value:
            parameter = old

        def do() -> Undo:
            plan.tenants.there(parameter.vhost)
            was = parameters.get(*key)
            parameters.put(parameter)
            return lambda: parameters.put(was) if was is not None else parameters.delete(*key)

        before = {"value": old.value} if old is not None else None
        plan.change(row, before, {"value": parameter.value}, do)
        if bridge is None or not _runs(parameter):
            plan.inactive.append({"section": row.section, **row.named(), "reason": INACTIVE})

    def _bridge(self, component: str) -> Any:
        """The feature that runs what a component defines; None if there is none."""
        if component == SHOVEL:
            return self._broker.shovels
        return self._broker.federation if component in (UPSTREAM, UPSTREAM_SET) else None

    def global_parameter(self, row: Row) -> None:
        name = row.name()
        if "value" not in row.fields:
            raise ValueError("'value' is missing")
        value = row.fields["value"]
        check_value(value, "value")
        if not self._plan.is_new(row, (name,), {"value": value}):
            return
        if name == "internal_cluster_id":
            raise LeftOut("it identifies the cluster that the file comes from")
        parameters = self._broker.access.parameters
        there = name in parameters.node
        if not there:
            self._plan.check_room("parameters", "", len(parameters.node), parameters.most)
        old = parameters.node.get(name)
        if there and without_secrets(old) == value:
            value = old

        def do() -> Undo:
            if name in parameters.node:
                was = parameters.node[name]
                parameters.put_global(name, value)
                return lambda: _nothing(parameters.put_global(name, was))
            parameters.put_global(name, value)
            return lambda: parameters.delete_global(name)

        self._plan.change(row, {"value": old} if there else None, {"value": value}, do)

    # -- policies ----------------------------------------------------------------------------------

    def policy(self, row: Row) -> None:
        self._policy(row, operator=False)

    def operator_policy(self, row: Row) -> None:
        self._policy(row, operator=True)

    def _policy(self, row: Row, *, operator: bool) -> None:
        plan, policies = self._plan, self._broker.policies
        vhost, name = self._plan.tenants.vhost_of(row), row.name()
        definition = row.table("definition")
        priority = row.fields.get("priority")
        if priority is None:
            priority = 0
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise ValueError("priority is not a number")
        apply_to = row.text_or("apply-to", "all")
        pattern = row.text("pattern")
        content = {
            "pattern": pattern,
            "definition": definition,
            "priority": priority,
            "apply-to": apply_to,
        }
        if not plan.is_new(row, ("operator" if operator else "user", vhost, name), content):
            return
        kept = self._known_keys(row, definition, operator)
        if definition and not kept:
            raise LeftOut("nothing of its definition has a counterpart here")
        policy = Policy(vhost, name, pattern, kept, apply_to, priority)
        try:
            Pattern(pattern or "(?:)")
        except BadPattern as error:
            if error.is_foreign:
                raise LeftOut(f"{FOREIGN_PATTERN}: {error}") from None
        compiled = policies.check(policy, operator=operator)
        old = policies.get(vhost, name, operator=operator)
        steps = self._steps.get((vhost, operator))
        if steps is None:
            steps = self._steps[vhost, operator] = policies.steps(vhost, operator=operator)
        policies.check_steps(old, steps, compiled)
        steps.put(name, compiled.pattern)
        if old is None:
            kind = "operator_policies" if operator else "policies"
            plan.check_room(kind, vhost, policies.how_many(vhost, operator=operator), policies.most)

        def tell() -> None:
            self._tell(vhost, name, operator=operator)

        def do() -> Undo:
            plan.tenants.there(vhost)
            was = policies.get(vhost, name, operator=operator)
            policies.put(policy, operator=operator)
            tell()

            def undo() -> None:
                if was is None:
                    policies.delete(vhost, name, operator=operator)
                else:
                    policies.put(was, operator=operator)
                tell()

            return undo

        before = msgspec.to_builtins(old) if old is not None else None
        if plan.change(row, before, {**content, "definition": kept}, do):
            plan.swept.add(vhost)

    def _tell(self, vhost: str, name: str, *, operator: bool) -> None:
        data = {"vhost": vhost, "name": name, "operator": operator}
        self._broker.emit("policy.changed", data)

    def _known_keys(self, row: Row, definition: dict[str, Any], operator: bool) -> dict[str, Any]:
        kept = {}
        for key, value in definition.items():
            known = KEYS.get(key)
            if known is None or not known.argument.built or value in known.argument.unbuilt:
                reason = "this broker has no such policy key"
            elif operator and not known.operator:
                reason = "an operator policy cannot set it here"
            else:
                kept[key] = value
                continue
            self._plan.leave_out(row, reason, part=f"definition.{key[:100]}")
        return kept


def _runs(parameter: Parameter) -> bool:
    return parameter.component != SHOVEL or shovel_keys.runs(parameter.value)


def _nothing(_: Any) -> None:
    """Drops an answer that an undo has no use for."""
