"""Every path of the web process, read from Django's table of routes, and who may learn there of a
virtual host in which they have no permissions. A path that is not listed here fails a test.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# In a process of its own: Django is set up once per process, and other tests need none.
_PRINT = """
import json, os
os.environ["DJANGO_SETTINGS_MODULE"] = "management.settings"
import django
django.setup()
from django.urls import get_resolver
def walk(resolver, prefix):
    for one in resolver.url_patterns:
        path = prefix + str(one.pattern)
        yield from walk(one, path) if hasattr(one, "url_patterns") else [path]
print(json.dumps(["/" + path.replace("seg:", "") for path in walk(get_resolver(), "")]))
"""


@functools.cache
def routes() -> list[str]:
    """`/api/queues/<vhost>` and so on."""
    done = subprocess.run(
        [sys.executable, "-c", _PRINT], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return sorted(set(json.loads(done.stdout)))


def _paths(text: str) -> list[str]:
    return text.split()


RULES: dict[str, list[str]] = {
    # Nothing of any virtual host is there.
    "nothing": _paths("""
        /api/ /api/auth /api/auth/hash_password /api/auth/hash_password/<password>
        /api/cluster-name /api/deprecated-features /api/deprecated-features/used /api/extensions
        /api/feature-flags /api/feature-flags/<name>/enable /api/health/checks/alarms
        /api/health/checks/below-node-connection-limit
        /api/health/checks/certificate-expiration/<within>/<unit>
        /api/health/checks/is-in-service /api/health/checks/local-alarms
        /api/health/checks/metadata-store/initialized
        /api/health/checks/metadata-store/initialized/with-data
        /api/health/checks/node-is-mirror-sync-critical
        /api/health/checks/node-is-quorum-critical /api/health/checks/port-listener/<port>
        /api/health/checks/protocol-listener/<protocol>
        /api/health/checks/quorum-queues-without-elected-leaders/all-vhosts
        /api/health/checks/quorum-queues-without-elected-leaders/all-vhosts/pattern/<pattern>
        /api/health/checks/reached-target-cluster-size
        /api/health/checks/ready-to-serve-clients /api/healthchecks/node
        /api/healthchecks/node/<name> /api/openapi.json /api/rebalance/queues /api/trace-files
        /api/version /api/whoami
        /api-docs /connect /console /console/ticket /health /login /logout
    """),
    # What is in a virtual host: only for those with permissions there, and administrators.
    "vhost": _paths("""
        /api/aliveness-test/<vhost> /api/bindings /api/bindings/<vhost>
        /api/bindings/<vhost>/e/<source>/<kind>/<destination>
        /api/bindings/<vhost>/e/<source>/<kind>/<destination>/<properties_key>
        /api/consumers /api/consumers/<vhost> /api/consumers/<vhost>/<connection>/<channel>/<tag>
        /api/exchanges /api/exchanges/<vhost> /api/exchanges/<vhost>/<name>
        /api/exchanges/<vhost>/<name>/bindings/destination
        /api/exchanges/<vhost>/<name>/bindings/source /api/exchanges/<vhost>/<name>/delayed
        /api/exchanges/<vhost>/<name>/delayed/<id> /api/exchanges/<vhost>/<name>/publish
        /api/health/checks/quorum-queues-without-elected-leaders/vhost/<vhost>
        /api/health/checks/quorum-queues-without-elected-leaders/vhost/<vhost>/pattern/<pattern>
        /api/federation-links /api/federation-links/<vhost> /api/federation-links/state/down
        /api/federation-links/state/down/ /api/federation-links/<vhost>/state/down
        /api/federation-links/<vhost>/state/down/
        /api/federation-links/vhost/<vhost>/<id>/<node>/restart
        /api/federation-upstreams/<vhost>/<name>/test /api/shovels /api/shovels/<vhost>
        /api/shovels/vhost/<vhost>/<name> /api/shovels/vhost/<vhost>/<name>/restart
        /api/shovels/<vhost>/<name>/pause /api/shovels/<vhost>/<name>/resume
        /api/shovels/<vhost>/<name>/test
        /api/global-parameters /api/global-parameters/<name>
        /api/operator-policies /api/operator-policies/<vhost> /api/operator-policies/<vhost>/<name>
        /api/parameters /api/parameters/<component> /api/parameters/<component>/<vhost>
        /api/parameters/<component>/<vhost>/<name> /api/policies /api/policies/<vhost>
        /api/policies/<vhost>/<name> /api/queues /api/queues/<vhost> /api/queues/<vhost>/<name>
        /api/queues/<vhost>/<name>/actions /api/queues/<vhost>/<name>/bindings
        /api/queues/<vhost>/<name>/contents /api/queues/<vhost>/<name>/get
        /api/queues/<vhost>/<name>/pause /api/queues/<vhost>/<name>/peek
        /api/queues/<vhost>/<name>/refusals /api/queues/<vhost>/<name>/restart
        /api/queues/<vhost>/<name>/resume /api/queues/<vhost>/<name>/stream
        /api/queues/<vhost>/<name>/unacked /api/queues/detailed
        /api/queues/<vhost>/<name>/copy /api/queues/<vhost>/<name>/move
        /api/queues/<vhost>/<name>/preview /api/queues/<vhost>/<name>/transfers
        /api/history/<vhost>/search /api/history/<vhost>/life/<offset>
        /api/streams/<vhost>/<name>/replay
        /api/streams/<vhost>/<name>/search /api/transfers
        /api/transfers/<id> /api/transfers/<id>/pause /api/transfers/<id>/resume
        /api/user-limits /api/user-limits/<user> /api/vhost-limits /api/vhost-limits/<vhost>
        /consumers /federation /federation-link /upstream /history /history/life
        /exchange /exchanges /exchanges/<vhost>/<name> /policies /policy
        /policy/preview /shovel /shovels
        /queue /queues /queues/<vhost>/<name> /queues/<vhost>/<name>/bindings
        /queues/<vhost>/<name>/consumers /queues/<vhost>/<name>/messages
        /queues/<vhost>/<name>/move /queues/<vhost>/<name>/settings
    """),
    # For administrators alone.
    "administrators": _paths("""
        /api/all-configuration /api/config/effective /api/definitions /api/definitions/<vhost>
        /api/definitions/<vhost>/upload /api/permissions /api/permissions/<vhost>/<user>
        /api/reset /api/reset/<node> /api/topic-permissions
        /api/topic-permissions/<vhost>/<user> /api/topic-permissions/<vhost>/<user>/<exchange>
        /api/traces /api/traces/<vhost> /api/traces/<vhost>/<name>
        /api/user-limits/<user>/<name> /api/users /api/users/<user> /api/users/<user>/permissions
        /api/users/<user>/queues /api/users/<user>/topic-permissions /api/users/bulk-delete
        /api/users/without-permissions
        /api/vhost-limits/<vhost>/<name> /api/vhosts/<vhost>
        /api/vhosts/<vhost>/deletion/protection /api/vhosts/<vhost>/permissions
        /api/vhosts/<vhost>/start/<node> /api/vhosts/<vhost>/topic-permissions
        /definitions /user /users /users/<name>
        /api/tiers/adopt
    """),
    # Connections, names of virtual hosts and figures of the node: also for those who monitor.
    "monitoring": _paths("""
        / /api/auth/attempts/<node> /api/auth/attempts/<node>/source /api/channels
        /api/channels/<name> /api/connections /api/connections/<name>
        /api/connections/<name>/channels /api/connections/username/<user>
        /api/health/checks/virtual-hosts /api/livelog /api/logs /api/nodes /api/nodes/<name>
        /api/nodes/<name>/gc_collect /api/nodes/<name>/memory /api/nodes/<name>/memory/ets
        /api/nodes/<name>/memory/ets/<table> /api/nodes/<name>/memory/ets/<table>/relative
        /api/nodes/<name>/memory/ets/relative /api/nodes/<name>/memory/relative
        /api/nodes/gc_collect /api/nodes/gc_stats /api/overview /api/problems
        /api/reports /api/reports/<name>
        /api/reports/<name>/plans /api/reports/<name>/plans/<plan>
        /api/reports/cost/tariff /api/reports/cost/tariff/<since>
        /api/reports/<name>/run /api/reports/<name>/runs/<run>
        /api/reports/<name>/runs/<run>/retry /api/vhosts
        /api/vhosts/<vhost>/channels /api/vhosts/<vhost>/connections
        /channels /connection /connections /connections/<name> /log
        /metrics /metrics/<page> /node /palette
        /problems
        /reports /reports/<name> /reports/<name>/status /vhost /vhosts /vhosts/<name>
        /api/tiers
    """),
}
