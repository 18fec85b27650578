"""The short form of `make hostile`: the attacks that no other test makes, one small round of each.
They are refused with a reason, and others are served."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.appliance import Appliance
from tests.hostile.__main__ import settings, users
from tests.hostile.attacks import documents, objects, single_turns
from tests.hostile.attacks.attacker import Attacker
from tests.hostile.measuring import PROBE

SHARE = 0.0005


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    directory = tmp_path_factory.mktemp("attacked")
    appliance = Appliance("serve", directory, **settings(directory, SHARE)).start()
    users(appliance)
    yield appliance
    appliance.close()


@pytest.mark.parametrize(
    "attack",
    [
        documents.deep_definitions,
        documents.deep_arguments,
        documents.wide_arguments,
        documents.wide_rows,
        documents.long_texts,
        documents.long_settings,
        documents.huge_numbers,
        documents.huge_names,
        documents.duplicate_rows,
        documents.duplicate_keys,
        documents.wide_import,
        documents.report_pages,
        objects.header_messages,
        objects.consumers,
        objects.policies,
        objects.headers_in_policies,
        objects.stream_tags,
        objects.stream_filters,
        single_turns.fanout,
        single_turns.wide_dead_letters,
        single_turns.wide_refusals,
        single_turns.wide_transfers,
        single_turns.carbon_copies,
        single_turns.large_commit,
        single_turns.large_messages,
        single_turns.large_records,
        single_turns.large_answers,
        single_turns.largest_tables,
    ],
    ids=lambda attack: attack.__name__,
)
def test_it_is_refused_or_bounded_and_others_are_served(
    attacked: Appliance, attack: Callable[[Attacker], str]
) -> None:
    said = attack(Attacker(attacked, SHARE, seconds=0))
    assert said
    url = f"{attacked.http_url}/api/exchanges/%2F/amq.topic"
    assert httpx.get(url, auth=(PROBE, PROBE), timeout=60).status_code == 200
    assert "Traceback" not in attacked.log()
