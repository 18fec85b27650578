"""The pages. Each page is one view, one template and one script of the same name."""

from django.urls import path

from frontend.views import (
    api_docs,
    channels,
    connect,
    connection,
    connections,
    console,
    consumers,
    exchange,
    exchanges,
    node,
    overview,
    palette,
    policies,
    policy,
    queue,
    queues,
    reports,
    user,
    users,
    vhost,
    vhosts,
)

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("queues", queues.queues, name="queues"),
    path("queue", queue.queue, name="queue-by-query"),
    path("queues/<seg:vhost>/<seg:name>", queue.queue, name="queue"),
    *(
        path(f"queues/<seg:vhost>/<seg:name>/{tab}", queue.queue, {"tab": tab}, f"queue-{tab}")
        for tab in queue.TABS[1:]
    ),
    path("exchanges", exchanges.exchanges, name="exchanges"),
    path("exchange", exchange.exchange, name="exchange-by-query"),
    path("exchanges/<seg:vhost>/<seg:name>", exchange.exchange, name="exchange"),
    path("connections", connections.connections, name="connections"),
    path("connection", connection.connection, name="connection-by-query"),
    path("connections/<seg:name>", connection.connection, name="connection"),
    path("channels", channels.channels, name="channels"),
    path("consumers", consumers.consumers, name="consumers"),
    path("policies", policies.policies, name="policies"),
    path("policy", policy.policy, name="policy"),
    path("policy/preview", policy.preview, name="policy-preview"),
    path("vhosts", vhosts.vhosts, name="vhosts"),
    path("vhost", vhost.vhost, name="vhost-by-query"),
    path("vhosts/<seg:name>", vhost.vhost, name="vhost"),
    path("users", users.users, name="users"),
    path("user", user.user, name="user-by-query"),
    path("users/<seg:name>", user.user, name="user"),
    path("node", node.node, name="node"),
    path("reports", reports.reports, name="reports"),
    path("reports/<seg:name>", reports.reports, name="report"),
    path("reports/<seg:name>/status", reports.status, name="report-status"),
    path("console", console.console, name="console"),
    path("console/ticket", console.ticket, name="console-ticket"),
    path("connect", connect.connect, name="connect"),
    path("palette", palette.palette, name="palette"),
    path("api-docs", api_docs.api_docs, name="api-docs"),
]
