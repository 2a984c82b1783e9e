"""Every request code that a broker serves, on raw frames to our broker and the official one, both with access control:
without a user, with a wrong signature, without the right. Code and sentence of the answers are the same.

What each code needs, and that it is served with exactly that, on our own codes and a NameServer too:
tests/auth/test_rights_of_requests.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.fixtures_access_pair import AccessPair
from tests.interop.test_official_rights import ASKED_HERE_ALONE, BODIES, EXPECTED_FIELDS, FIELDS
from thermocline.auth.rights_table import RULES
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.response_code import ResponseCode

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("mqadmin-users")]

TIMEOUT_MS = 60_000
DORA = Credentials(access_key="dora", secret_key="the-key-of-dora")
WRONG = Credentials(access_key="dora", secret_key="not-the-key")
OF_NAME_SERVERS = frozenset({*range(100, 107), 205, 206, 217, 224, *range(304, 319), 322, 327, 901, 904})
"""RocketMQ's brokers do not serve them."""

CODES = sorted(code for code in RequestCode if code in RULES and code not in OF_NAME_SERVERS)


@pytest.fixture(scope="module")
def pair(access_pair: AccessPair) -> Iterator[AccessPair]:
    """With a user that has no right."""
    assert all(access_pair.run("createUser -b {broker} -u dora -p the-key-of-dora"))
    yield access_pair
    access_pair.run("deleteUser -b {broker} -u dora")


async def answers(address: str, user: Credentials | None) -> dict[RequestCode, tuple[int, str | None]]:
    """Code and sentence by request code."""
    connection = await ClientConnection.open(address)
    found = {}
    try:
        for code in CODES:
            fields = {name: value for name, value in FIELDS.items() if name != "AccessKey"}
            command = RemotingCommand.request(
                code, ext_fields={**fields, **EXPECTED_FIELDS.get(code, {})}, body=BODIES.get(code, b"{}")
            )
            if user is not None:
                user.sign(command)
            answer = await connection.call(command, timeout_ms=TIMEOUT_MS)
            found[code] = answer.code, answer.remark
    finally:
        connection.close()
    return found


@pytest.mark.parametrize(("user", "sentence"), [(None, "username cannot be null."), (WRONG, "check signature failed.")])
async def test_who_proves_nothing_gets_the_same_answer(
    pair: AccessPair, user: Credentials | None, sentence: str
) -> None:
    ours, official = await answers(pair.ours.broker_address, user), await answers(pair.official.broker_address, user)
    assert ours == official
    assert set(ours.values()) == {(ResponseCode.NO_PERMISSION, sentence)}


async def test_who_has_no_right_gets_the_same_answer(pair: AccessPair) -> None:
    ours, official = await answers(pair.ours.broker_address, DORA), await answers(pair.official.broker_address, DORA)
    compared = [code for code in CODES if code not in ASKED_HERE_ALONE and RULES[code].needs]
    assert {ours[code][0] for code in compared} == {ResponseCode.NO_PERMISSION}
    different = {code.name: (ours[code], official[code]) for code in compared if ours[code] != official[code]}
    assert different == {}
