"""Real clients over TLS: pika and aio-pika, with a password and with a certificate."""

from __future__ import annotations

import ssl

import aio_pika
import pika
import pytest

from tests.amqp.test_permissions import ask
from tests.appliance import Appliance
from tests.clients.conftest import parameters
from tests.conftest import Make
from tests.listeners.certificates import Authority


@pytest.fixture
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def broker(make_broker: Make, authority: Authority) -> Appliance:
    """One that believes the authority's clients and names them by their common name."""
    certificate = authority.issue("server", subject="/CN=server", san="DNS:localhost")
    return make_broker(
        amqps_port=0,
        tls_cert_file=certificate,
        tls_ca_file=authority.file,
        tls_verify="optional",
        tls_login_from="common_name",
    )


def over_tls(
    broker: Appliance, context: ssl.SSLContext, **more: object
) -> pika.ConnectionParameters:
    return parameters(
        tuple(broker.addresses["amqps"]),
        ssl_options=pika.SSLOptions(context, "localhost"),
        **more,
    )


async def test_with_a_password(broker: Appliance, authority: Authority) -> None:
    context = authority.client_context()
    with pika.BlockingConnection(over_tls(broker, context)) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.confirm_delivery()
        channel.basic_publish("", queue, bytes(1_000_000))
        assert channel.basic_get(queue, auto_ack=True)[2] == bytes(1_000_000)
    host, port = broker.addresses["amqps"]
    async with await aio_pika.connect(
        f"amqps://guest:guest@localhost:{port}/", ssl_context=context
    ) as aio:
        assert host == "127.0.0.1"
        channel_of_it = await aio.channel()
        declared = await channel_of_it.declare_queue(exclusive=True)
        await channel_of_it.default_exchange.publish(aio_pika.Message(b"x" * 70_000), declared.name)
        message = await declared.get(timeout=60)
        assert message is not None and len(message.body) == 70_000


def test_with_a_certificate(broker: Appliance, authority: Authority) -> None:
    till = authority.issue("till", subject="/O=Shop/CN=till-1")
    ask(broker, "user.put", name="till-1", password="", tags="")
    ask(broker, "permission.put", vhost="/", user="till-1", configure=".*", write=".*", read=".*")
    external = pika.credentials.ExternalCredentials()
    context = authority.client_context(till)
    with pika.BlockingConnection(over_tls(broker, context, credentials=external)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        # Who has logged in by certificate is the user whom messages may name.
        properties = pika.BasicProperties(user_id="till-1")
        channel.basic_publish("amq.fanout", "", b"", properties)
    # Without a certificate the mechanism is not offered.
    with pytest.raises(pika.exceptions.AuthenticationError):
        pika.BlockingConnection(over_tls(broker, authority.client_context(), credentials=external))
