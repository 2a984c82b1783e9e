"""The twelve mqadmin commands about users and policies print here what they print against the official broker.

Both brokers have access control on; mqadmin signs with the keys of its conf/tools.yml. Commands run one after another
against both, in the order below, so that both have the same users and policies all the time.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.interop.cluster import CLUSTER_NAME
from tests.interop.fixtures_access_pair import ROOT_KEY, AccessPair

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("mqadmin-users")]

CLUSTER = CLUSTER_NAME

NO_SUBJECT = "createAcl -b {broker} -s Robot:alice -r Topic:orders -a Pub -d Allow"

COMMANDS = (
    # users
    "listUser -b {broker}",
    f"listUser -c {CLUSTER}",
    "createUser -b {broker} -u alice -p alicekey",
    "createUser -b {broker} -u alice -p alicekey",
    f"createUser -c {CLUSTER} -u bob -p bobkey -t Super",
    "createUser -b {broker} -u carol -p carolkey -t NoSuchType",
    "getUser -b {broker} -u alice",
    f"getUser -c {CLUSTER} -u bob",
    "getUser -b {broker} -u absent",
    "listUser -b {broker} -f li",
    "updateUser -b {broker} -u alice -p otherkey",
    "updateUser -b {broker} -u alice -t Super",
    f"updateUser -c {CLUSTER} -u alice -t Normal",
    "updateUser -b {broker} -u alice -s disable",
    "updateUser -b {broker} -u absent -p key",
    "getUser -b {broker} -u alice",
    "updateUser -b {broker} -u alice -s enable",
    # policies
    "listAcl -b {broker}",
    "createAcl -b {broker} -s User:alice -r Topic:orders -a Pub,Sub -i 192.168.1.0/24 -d Allow",
    f"createAcl -c {CLUSTER} -s User:alice -r Topic:orders*,Group:* -a Sub -d Deny",
    "createAcl -b {broker} -s User:bob -r * -a All -d Allow",
    "createAcl -b {broker} -s User:absent -r Topic:orders -a Pub -d Allow",
    NO_SUBJECT,
    "createAcl -b {broker} -s User:alice -r NoSuchType:orders -a Pub -d Allow",
    "createAcl -b {broker} -s User:alice -r Topic:orders -a NoSuchAction -d Allow",
    "createAcl -b {broker} -s User:alice -r Topic:orders -a Any -d Allow",
    "createAcl -b {broker} -s User:alice -r Topic:orders -a Pub -d Perhaps",
    "createAcl -b {broker} -s User:alice -r Topic:orders -a Pub -i 300.1.1.1 -d Allow",
    "getAcl -b {broker} -s User:alice",
    f"getAcl -c {CLUSTER} -s User:bob",
    "getAcl -b {broker} -s User:carol",
    "getAcl -b {broker} -s User:absent",
    "listAcl -b {broker} -s alice",
    "listAcl -b {broker} -r orders*",
    "updateAcl -b {broker} -s User:alice -r Topic:orders -a Get -d Deny",
    "updateAcl -b {broker} -s User:carol -r Topic:pay -a Get,List -d Allow",
    f"updateAcl -c {CLUSTER} -s User:alice -r Topic:new -a All -i ::1,10.0.0.1 -d Allow",
    "listAcl -b {broker}",
    "deleteAcl -b {broker} -s User:alice -r Topic:orders",
    "deleteAcl -b {broker} -s User:alice -r Topic:nothing",
    "getAcl -b {broker} -s User:alice",
    "deleteAcl -b {broker} -s User:alice",
    "deleteAcl -b {broker} -s User:alice",
    "deleteAcl -b {broker} -s User:absent",
    "listAcl -b {broker}",
    # copies, to itself
    "copyUser -f {broker} -t {broker} -u carol,bob",
    "copyUser -f {broker} -t {broker}",
    "copyAcl -f {broker} -t {broker} -s User:carol",
    "copyAcl -f {broker} -t {broker}",
    "listUser -b {broker}",
    "listAcl -b {broker}",
    # the end
    "deleteUser -b {broker} -u carol",
    "deleteUser -b {broker} -u carol",
    f"deleteUser -c {CLUSTER} -u bob",
    "listAcl -b {broker}",
)
DIFFERENT: Mapping[str, str] = {
    NO_SUBJECT: "the official broker fails on a subject of an unknown type; ours says what is wrong with it"
}


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=lambda number: f"{number}-{COMMANDS[number].split()[0]}")
def test_a_command_prints_the_same(access_pair: AccessPair, number: int) -> None:
    line = COMMANDS[number]
    ours, official = access_pair.run(line)
    if line in DIFFERENT:
        assert ours != official, f"no longer different, so its line has to go: {DIFFERENT[line]}"
    else:
        assert ours == official, line


def test_the_keys_are_in_no_log(access_pair: AccessPair) -> None:
    log = access_pair.ours.process.log_path.read_text(errors="replace")
    for key in (ROOT_KEY, "the-key-of-brokers", "alicekey", "otherkey", "bobkey"):
        assert key not in log
