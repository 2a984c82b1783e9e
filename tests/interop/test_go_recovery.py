"""The official Go push consumer, unmodified, while its broker loses its disk and comes back from the bucket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures_s3 import new_bucket
from tests.interop.consumers_through_recovery import go_on_through_recovery
from tests.interop.go_agent import GoAgent
from tests.interop.test_java_replay_outage import JavaReplay
from thermocline.localstack import S3Server

pytestmark = [pytest.mark.go, pytest.mark.crash, pytest.mark.s3, pytest.mark.xdist_group("interop-go")]

OPTIONS = {"from": "first", "pull_count": 16, "pull_interval_ms": 50}


@pytest.mark.full
async def test_consumers_go_on_without_a_reset(
    tmp_path: Path, s3_servers: Callable[[str], S3Server], go_agent_process: GoAgent
) -> None:
    await go_on_through_recovery(
        tmp_path,
        new_bucket(s3_servers("minio")).cold_url,
        lambda group, name_server: JavaReplay(go_agent_process, group, name_server, **OPTIONS),
    )
