"""The official Java push consumer, unmodified, while its broker loses its disk and comes back from the bucket."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures_s3 import new_bucket
from tests.interop.consumers_through_recovery import go_on_through_recovery
from tests.interop.java_agent import JavaAgent
from tests.interop.test_java_replay_outage import JavaReplay
from thermocline.localstack import S3Server

pytestmark = [pytest.mark.java, pytest.mark.crash, pytest.mark.s3, pytest.mark.xdist_group("interop-replay")]


@pytest.mark.full
async def test_consumers_go_on_without_a_reset(
    tmp_path: Path, s3_servers: Callable[[str], S3Server], java_agent_process: JavaAgent
) -> None:
    await go_on_through_recovery(
        tmp_path,
        new_bucket(s3_servers("minio")).cold_url,
        lambda group, name_server: JavaReplay(java_agent_process, group, name_server),
        lag_of=lambda group, name_server: diff_total(java_agent_process, group, name_server),
    )


def diff_total(agent: JavaAgent, group: str, name_server: str) -> int:
    """What `mqadmin consumerProgress` says that a group has before it."""
    printed = agent.admin(name_server, "consumerProgress", "-g", group)
    found = re.search(r"Diff Total: (-?\d+)", printed)
    assert found is not None, printed
    return int(found[1])
