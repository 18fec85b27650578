"""Channels in the list and on the page of their connection."""

from __future__ import annotations

import re

import pika
from playwright.sync_api import Page, expect

from tests.appliance import Appliance


def test_it_shows_what_a_transaction_puts_aside(page: Page, shared_leveret: Appliance) -> None:
    with pika.BlockingConnection(pika.URLParameters(shared_leveret.amqp_url)) as connection:
        channel = connection.channel()
        channel.tx_select()
        channel.basic_publish("amq.fanout", "", bytes(3 * 1024))
        connection.process_data_events(0)
        page.goto("/channels?sort=-message_bytes_uncommitted")
        row = page.locator("tbody tr").first
        expect(row).to_contain_text(re.compile(r"3\.\d+ KiB"))
        row.get_by_role("link").first.click()
        expect(page.locator("main")).to_contain_text(re.compile(r"3\.\d+ KiB uncommitted"))
        channel.tx_rollback()
