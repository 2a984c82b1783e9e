"""The file of routing rules: read, followed, and kept to where a change cannot be used.

Covers `proxy/routing/routing.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import until
from thermocline.proxy.messaging import Caller
from thermocline.proxy.routing import Routing, Rules, RulesFile, parse_rules
from thermocline.proxy.routing.rules_file import FILE_BYTES_MAX
from thermocline.remoting.errors import SettingError

ONE = '{"rules": [{"topic": "T", "cluster": "east"}]}'
TWO = '{"rules": [{"topic": "T", "cluster": "west"}, {"topic": "U", "cluster": "west"}]}'
EAST = '[{"name": "east", "namesrvAddr": "127.0.0.1:9876"}]'


def parse(data: bytes) -> Rules:
    return parse_rules(data, clusters=("default", "east", "west"), has_users=False)


def write(path: Path, text: str) -> None:
    """Replace the file, so that it is never there in part."""
    part = path.with_suffix(".new")
    part.write_text(text)
    part.rename(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "rules.json"
    found.write_text(ONE)
    return found


async def changed(file: RulesFile, is_changed: Callable[[], bool]) -> None:
    await until(is_changed, what="the file has been looked at")


async def test_a_change_counts_and_what_cannot_be_used_does_not(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = RulesFile(str(path), parse)
    file.start()
    try:
        assert len(file.rules.rules) == 1
        with caplog.at_level(logging.INFO):
            write(path, TWO)
            await changed(file, lambda: len(file.rules.rules) == 2)
            for text, sentence in (
                ('{"rules": [{"topic": "T", "cluster": "nowhere"}]}', "there is no cluster nowhere"),
                ("no rules", "cannot be read"),
            ):
                write(path, text)
                await changed(file, lambda sentence=sentence: sentence in file.refusal)  # type: ignore[misc]
                assert len(file.rules.rules) == 2
            path.unlink()
            await changed(file, lambda: "No such file" in file.refusal)
            assert len(file.rules.rules) == 2
            write(path, ONE)
            await changed(file, lambda: len(file.rules.rules) == 1)
        assert file.refusal == ""
        texts = [record.getMessage() for record in caplog.records if record.name.endswith("rules_file")]
        assert sum("routing rules are refused, those from before stay in force" in text for text in texts) == 3
        assert sum("routing rules changed" in text for text in texts) == 2
    finally:
        await file.close()
        await file.close()


async def test_a_file_that_still_changes_is_not_read_yet(path: Path) -> None:
    file = RulesFile(str(path), parse)
    write(path, TWO)
    await file.read_if_changed()
    assert len(file.rules.rules) == 1
    write(path, TWO + " ")
    await file.read_if_changed()
    assert len(file.rules.rules) == 1
    await file.read_if_changed()
    assert len(file.rules.rules) == 2


def test_a_start_needs_a_file_with_rules(path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read: No such file"):
        RulesFile(str(path.with_name("other")), parse)
    path.write_text(" " * (FILE_BYTES_MAX + 1))
    with pytest.raises(SettingError, match=f"more than {FILE_BYTES_MAX} bytes"):
        RulesFile(str(path), parse)


def test_clusters_and_rules_need_each_other(path: Path) -> None:
    for clusters, rules_path in ((EAST, ""), ("", str(path))):
        with pytest.raises(SettingError, match="routingClusters and routingRulesPath need each other"):
            Routing(clusters=clusters, rules_path=rules_path)


def test_a_retry_topic_goes_by_its_group_and_is_read_in_every_cluster(path: Path) -> None:
    path.write_text('{"rules": [{"group": "G", "cluster": "east"}]}')
    routing = Routing(clusters=EAST, rules_path=str(path))
    assert routing.decide("%RETRY%G", "", Caller()).clusters == ("east", "default")
    assert routing.decide("%RETRY%H", "", Caller()).clusters == ("default", "east")
    assert routing.decide("T", "", Caller()).clusters == ("default",)


def test_what_is_shown_has_the_rules_and_no_key(path: Path) -> None:
    clusters = (
        '[{"name": "east", "namesrvAddr": "127.0.0.1:9876", "credentials": {"accessKey": "a", "secretKey": "hidden"}}]'
    )
    shown = Routing(clusters=clusters, rules_path=str(path)).shown()
    assert shown == {
        "path": str(path),
        "refusal": "",
        "rules": [{"topic": "T", "cluster": "east"}],
        "clusters": [{"name": "east", "namesrvAddr": "127.0.0.1:9876", "rocketMQClusterName": "DefaultCluster"}],
    }
