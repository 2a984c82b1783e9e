"""With access control on broker and NameServer, clients work as before for a user with rights to topics and groups.

Tests of other modules, each feature once, by Java clients 5.5 and our SDK; more of them: test_access_features_full.py.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import (
    test_java_client,
    test_java_pop,
    test_java_transactions,
    test_python_sdk,
)
from tests.interop.cluster import THERMOCLINE, Cluster, thermocline_daemons, wait_until_registered
from tests.interop.java_agent import JavaAgent, java_agent
from thermocline.client import AdminClient, Credentials, Producer
from thermocline.client.credentials import ENVIRONMENT
from thermocline.remoting.errors import MQError
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("access-features")]

ROOT = Credentials(access_key="root", secret_key="the-key-of-root")
APP = Credentials(access_key="app", secret_key="the-key-of-app")
RIGHTS = {"Topic:*": ["Pub", "Sub", "Get", "Create"], "Group:*": ["Sub", "Get"], "Cluster:*": ["Get"]}
ACCESS = {
    "AuthenticationEnabled": "true",
    "AuthorizationEnabled": "true",
    "InitAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
    "InnerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "the-key-of-brokers"}),
}
SETTINGS = {
    **{name[0].lower() + name[1:]: value for name, value in ACCESS.items()},
    **{f"nameServer{name}": value for name, value in ACCESS.items()},
    **test_java_transactions.SETTINGS,
    "traceTopicEnable": "true",
}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def java_agent_process(official_software: OfficialSoftware, module_folder: Path) -> Iterator[JavaAgent]:
    """A JVM whose clients sign as the user, and whose mqadmin signs as the super user."""
    home = module_folder / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "tools.yml").write_text(f"accessKey: {ROOT.access_key}\nsecretKey: {ROOT.secret_key}\n")
    options = [
        f"-Drocketmq.home.dir={home}",
        f"-Dinterop.accessKey={APP.access_key}",
        f"-Dinterop.secretKey={APP.secret_key}",
    ]
    with java_agent(official_software, module_folder / "agent", options=options) as agent:
        yield agent


@pytest.fixture(scope="module")
def cluster(java_agent_process: JavaAgent, module_folder: Path) -> Iterator[Cluster]:
    """Both with access control, and a user with rights to all topics and groups."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT.values()}
    with thermocline_daemons(module_folder / "daemons", settings=SETTINGS) as daemons:
        wait_until_registered(java_agent_process, daemons.namesrv, daemons.broker_address)
        with AdminClient(namesrv=daemons.namesrv, credentials=ROOT) as admin:
            for name_servers in (False, True):
                admin.create_user(APP.access_key, APP.secret_key, name_servers=name_servers)
                for resource, actions in RIGHTS.items():
                    admin.set_acl("User:app", [resource], actions, name_servers=name_servers)
        os.environ["THERMOCLINE_ACCESS_KEY"], os.environ["THERMOCLINE_SECRET_KEY"] = APP.access_key, APP.secret_key
        try:
            yield Cluster(
                kind=THERMOCLINE,
                namesrv=daemons.namesrv,
                broker_address=daemons.broker_address,
                agent=java_agent_process,
                process=daemons.process,
            )
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
        java_agent_process.call("stop_producers", namesrv=daemons.namesrv)


@pytest.fixture
def asking_cluster(cluster: Cluster) -> Cluster:
    return cluster


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and clients that no other test uses."""
    return f"Access{next(_numbers)}x{request.node.originalname[5:35]}"


def test_a_name_server_refuses_the_unsigned(cluster: Cluster) -> None:
    for credentials in (None, Credentials(access_key="app", secret_key="not-the-key")):
        with (
            pytest.raises(MQError) as refused,
            Producer(namesrv=cluster.namesrv, group="refused", credentials=credentials) as producer,
        ):
            producer.send(test_python_sdk.Message("TBW102", b"never stored"))
        assert "username cannot be null." in str(refused.value) or "check signature failed." in str(refused.value)


test_sends = test_java_client.test_every_kind_of_send_arrives_exactly_once
test_pop = test_java_pop.test_an_unacknowledged_message_is_redelivered_after_its_invisible_time

producers = test_java_transactions.producers
consumer = test_java_transactions.consumer
test_transactions = test_java_transactions.test_committed_messages_arrive_and_others_do_not

test_sdk_members = test_python_sdk.test_two_members_share_and_one_takes_over
test_sdk_pull = test_python_sdk.test_pull_consumers_subscribe_assign_seek_and_commit
