"""Who may log in, and what a user may do.

`Access` is the one place where users, tags, permissions and limits are kept and asked about, for
AMQP, WebSocket and HTTP alike.
"""

from broker.access.accounts import Access
from broker.access.login import Job, Refused
from broker.access.parameters import Parameters
from broker.access.records import (
    BadSetting,
    Kind,
    Parameter,
    Permission,
    TopicPermission,
    User,
)
from broker.access.rights import Rights
from broker.access.throttle import Limits

__all__ = [
    "Access",
    "BadSetting",
    "Job",
    "Kind",
    "Limits",
    "Parameter",
    "Parameters",
    "Permission",
    "Refused",
    "Rights",
    "TopicPermission",
    "User",
]
