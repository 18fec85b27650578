from collections.abc import Mapping
from typing import Any

def delay_in(headers: Mapping[str, Any]) -> int: ...
