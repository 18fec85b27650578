"""Carries a plan out, or takes back what it did of it: all or nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from broker.definitions.plan import Plan, Undo
from broker.schema.errors import AMQPError

log = logging.getLogger("leveret.definitions")


_AT_ONCE = 200


class Failed(Exception):
    """A plan that could not be carried out, though it was checked: something changed meanwhile, or
    the disk refused. What was done of it is taken back; the text says why."""


def carry_out(plan: Plan) -> Iterator[None]:
    """Makes the changes of a plan, one a step, or takes them back, one a step. Raises Failed."""
    undo: list[Undo] = []
    try:
        for step in plan.steps:
            try:
                undo.append(step.do())
            except (AMQPError, KeyError, ValueError, OSError) as error:
                raise Failed(f"{step.section} {step.named}: {error}") from error
            plan.made += 1
            yield
    except GeneratorExit:
        # The broker stops: its next start carries the rest out.
        raise
    except BaseException:
        while undo:
            # What is taken back is given up at once: together it would hold up the loop.
            take_back = undo.pop()
            plan.steps.pop()
            try:
                take_back()
            except Exception:
                log.exception("definitions import: a change could not be taken back")
            yield
        raise
    # Given up in slices, too: together they would hold up the loop.
    while plan.steps:
        del plan.steps[-_AT_ONCE:]
        del undo[-_AT_ONCE:]
        yield
