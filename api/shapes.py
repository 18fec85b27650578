"""Field types that several bodies share."""

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema


def _flag(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError(f"not_boolean: {str(value)[:100]!r}")


def _text(value: Any) -> Any:
    if isinstance(value, str):
        return value
    raise ValueError("not_string")


def _number(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 20:
        return int(value)
    raise ValueError("not_integer")


def _object(value: Any) -> Any:
    # An empty list is what PHP and Erlang clients send for an empty object.
    if value == [] or value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise ValueError("not_object")


Flag = Annotated[bool, BeforeValidator(_flag), WithJsonSchema({"type": "boolean"})]
"""A boolean, or the words `true` and `false`."""

Text = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": "string"})]

Number = Annotated[int, BeforeValidator(_number), WithJsonSchema({"type": "integer"})]
"""A whole number, or its decimal digits in a string."""

Object = Annotated[dict[str, Any], BeforeValidator(_object), WithJsonSchema({"type": "object"})]
"""A JSON object; an empty list counts as an empty one."""
