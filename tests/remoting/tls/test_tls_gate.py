"""The port: what each mode takes, which certificates, bounds on handshakes, files that change.

Covers `remoting/connections/first_byte.py`, `remoting/tls/server_context.py`, `remoting/tls/self_signed.py`,
`remoting/tls/certificate_maker.py`, `remoting/tls/client_context.py`, `remoting/tls/certificate_subject.py`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.remoting.tls.tls_server import (
    Certificates,
    Served,
    echo,
    make_server_certificates,
    served,
    unchecked_context,
    who,
)
from tests.waiting import until
from thermocline.remoting.errors import ConnectionLostError
from thermocline.remoting.settings.tls_config import TlsConfig, TlsMode
from thermocline.remoting.tls.certificate_subject import certificate_subject
from thermocline.remoting.tls.tls_options import TlsOptions

UNCHECKED = TlsOptions(verify=False)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_server_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("foreign"), name="Another authority")


async def refused(serving: Served, tls: TlsOptions | None) -> ConnectionLostError:
    """The error of a connection that is not served: of TLS 1.3 a client learns it with its first request."""
    with pytest.raises(ConnectionLostError) as caught:
        await echo(await serving.connect(tls))
    return caught.value


# -- modes ---------------------------------------------------------------------------------------------------------


async def test_permissive_takes_plain_and_tls_on_one_port(certificates: Certificates) -> None:
    async with served(certificates.server()) as serving:
        plain, tls = await serving.connect(None), await serving.connect(certificates.client())
        for client in (plain, tls):
            await echo(client)
            address, subject = await who(client)
            assert address == client.local_address
            assert subject == ""
        assert serving.server.connection_count == 2
        assert serving.gate.handshakes == 0


async def test_enforcing_closes_a_plain_connection_with_one_line(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(certificates.server(server_mode="enforcing")) as serving:
        with caplog.at_level(logging.INFO):
            await refused(serving, None)
        (line,) = [record.getMessage() for record in caplog.records if "remote=" in record.getMessage()]
        assert line.startswith("connection refused, it is not TLS and tls.server.mode is enforcing remote=127.0.0.1:")
        await echo(await serving.connect(certificates.client()))


async def test_disabled_closes_a_tls_connection_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async with served(TlsConfig(server_mode="disabled")) as serving:
        with caplog.at_level(logging.INFO):
            await refused(serving, UNCHECKED)
        lines = [
            record.getMessage() for record in caplog.records if "tls.server.mode is disabled" in record.getMessage()
        ]
        assert len(lines) == 1
        await echo(await serving.connect(None))


async def test_without_files_the_certificate_is_self_signed(tmp_path: Path) -> None:
    async with served(TlsConfig()) as serving:
        await echo(await serving.connect(UNCHECKED))
        error = await refused(serving, TlsOptions())
        assert error.message == "the server's certificate is not trusted"
        assert "self-signed" in str(error)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("protocols", ["", "TLSv1.2", "TLSv1.3", "TLSv1.2,TLSv1.3"])
async def test_versions_are_those_that_are_set(
    certificates: Certificates, version: ssl.TLSVersion, protocols: str
) -> None:
    is_taken = not protocols or version.name.replace("_", ".") in protocols
    async with served(certificates.server(protocols=protocols)) as serving:
        try:
            _, writer = await asyncio.open_connection(
                "127.0.0.1", serving.port, ssl=unchecked_context(version=version), server_hostname="localhost"
            )
        except ssl.SSLError:
            assert not is_taken
        else:
            assert is_taken
            assert writer.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
            writer.close()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
async def test_older_versions_are_refused(
    certificates: Certificates, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(certificates.server()) as serving:
        with caplog.at_level(logging.INFO), pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
            await asyncio.open_connection(
                "127.0.0.1", serving.port, ssl=unchecked_context(version=version), server_hostname="localhost"
            )
        await until(lambda: "reason=UNSUPPORTED_PROTOCOL" in caplog.text)


# -- what clients check ----------------------------------------------------------------------------------------------


async def test_a_client_refuses_a_certificate_of_another_authority(
    certificates: Certificates, foreign: Authority
) -> None:
    async with served(certificates.server()) as serving:
        error = await refused(serving, TlsOptions(ca_file=str(foreign.path)))
        assert error.message == "the server's certificate is not trusted"
        assert (await refused(serving, TlsOptions())).message == "the server's certificate is not trusted"


async def test_a_client_refuses_a_certificate_of_another_name(certificates: Certificates) -> None:
    async with served(certificates.server()) as serving:
        await echo(await serving.connect(certificates.client(server_name="localhost")))
        error = await refused(serving, certificates.client(server_name="broker.example"))
        assert error.message == "the server's certificate is not trusted"
        assert "broker.example" in str(error)


async def test_a_client_without_checks_says_so(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    async with served(certificates.server()) as serving:
        await echo(await serving.connect(UNCHECKED))
    assert "the certificates of servers are not checked" in caplog.text


async def test_a_client_takes_changed_files_over(certificates: Certificates, tmp_path: Path) -> None:
    from thermocline.remoting.clients.client import ClientConnection
    from thermocline.remoting.tls.client_context import ClientTls

    path = tmp_path / "trust.pem"
    path.write_bytes(Authority(tmp_path / "old").path.read_bytes())
    client = ClientTls(TlsOptions(ca_file=str(path)))
    async with served(certificates.server()) as serving:
        with pytest.raises(ConnectionLostError, match="not trusted"):
            await ClientConnection.open(serving.address, tls=client)
        path.write_bytes(certificates.authority.path.read_bytes())
        await echo(await ClientConnection.open(serving.address, tls=client))
        path.write_text("no certificate")
        await echo(await ClientConnection.open(serving.address, tls=client))


# -- certificates of clients -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client_certificate(certificates: Certificates) -> tuple[Path, Path]:
    return certificates.authority.issue("client.pem", "client.key", subject="billing, team 7", password="geheim")


@pytest.fixture(scope="module")
def foreign_certificate(foreign: Authority) -> tuple[Path, Path]:
    return foreign.issue("client.pem", "client.key", subject="stranger")


def showing(certificates: Certificates, shown: tuple[Path, Path], password: str | None = None) -> TlsOptions:
    return certificates.client(cert_file=str(shown[0]), key_file=str(shown[1]), key_password=password)


@pytest.mark.parametrize("asked", ["none", "optional", "require"])
async def test_certificates_of_clients(
    certificates: Certificates,
    client_certificate: tuple[Path, Path],
    foreign_certificate: tuple[Path, Path],
    asked: str,
) -> None:
    trust = {} if asked == "none" else {"server_trust_path": str(certificates.authority.path)}
    async with served(certificates.server(client_certificate=asked, **trust)) as serving:
        right = await serving.connect(showing(certificates, client_certificate, "geheim"))
        assert (await who(right))[1] == ("" if asked == "none" else "CN=billing\\, team 7")
        without, stranger = certificates.client(), showing(certificates, foreign_certificate)
        if asked == "require":
            await refused(serving, without)
        else:
            assert (await who(await serving.connect(without)))[1] == ""
        if asked == "none":
            assert (await who(await serving.connect(stranger)))[1] == ""
        else:
            await refused(serving, stranger)
        await echo(right)


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
async def test_a_required_certificate_that_plain_connections_get_around_is_told(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    config = certificates.server(
        server_mode=mode, client_certificate="require", server_trust_path=str(certificates.authority.path)
    )
    with caplog.at_level(logging.WARNING):
        async with served(config) as serving:
            if mode == TlsMode.PERMISSIVE:
                await echo(await serving.connect(None))
            else:
                await refused(serving, None)
    warning = "plain connections are served without a certificate"
    assert (warning in caplog.text) == (mode == TlsMode.PERMISSIVE)


async def test_system_authorities_count_where_no_file_is_named(
    certificates: Certificates, foreign_certificate: tuple[Path, Path]
) -> None:
    config = certificates.server(client_certificate="require", check_clients=True)
    async with served(config) as serving:
        await refused(serving, showing(certificates, foreign_certificate))


def test_subjects_are_escaped() -> None:
    subject = ((("countryName", "DE"),), (("organizationName", "A+B; \\C"),), (("commonName", " x "), ("userId", "#7")))
    assert certificate_subject({"subject": subject}) == "CN=\\ x\\ ,UID=\\#7,O=A\\+B\\; \\\\C,C=DE"
    assert certificate_subject(None) == ""
    assert certificate_subject({}) == ""


# -- bounds ------------------------------------------------------------------------------------------------------------


async def test_a_handshake_that_stalls_is_closed(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    async with served(certificates.server(handshake_timeout_ms=100)) as serving:
        standing = await serving.connect(certificates.client())
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        with caplog.at_level(logging.INFO):
            writer.write(b"\x16\x03\x01")
            assert await reader.read() == b""
        assert "TLS handshake took too long remote=127.0.0.1:" in caplog.text
        await until(lambda: serving.gate.handshakes == 0)
        await echo(standing)
        writer.close()


async def test_too_many_handshakes_are_refused_with_a_line_for_many(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(certificates.server(handshakes_max=3)) as serving:
        stalled = [await asyncio.open_connection("127.0.0.1", serving.port) for _ in range(3)]
        for _, writer in stalled:
            writer.write(b"\x16\x03\x01")
        await until(lambda: serving.gate.handshakes == 3)
        with caplog.at_level(logging.WARNING):
            for _ in range(5):
                await refused(serving, certificates.client())
        assert caplog.text.count("limit reached limit=tlsHandshakesMax") == 1
        await echo(await serving.connect(None))
        stalled[0][1].close()
        await until(lambda: serving.gate.handshakes == 2)
        await echo(await serving.connect(certificates.client()))
        for _, writer in stalled:
            writer.close()


async def test_a_server_that_closes_ends_handshakes(certificates: Certificates) -> None:
    async with served(certificates.server()) as serving:
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        writer.write(b"\x16\x03\x01")
        await until(lambda: serving.gate.handshakes == 1)
    assert await reader.read() == b""
    assert serving.gate.handshakes == 0
    writer.close()


# -- files that change -------------------------------------------------------------------------------------------------


async def test_new_files_count_within_a_second_and_standing_connections_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = make_server_certificates(tmp_path / "server")
    async with served(certificates.server()) as serving:
        standing = await serving.connect(certificates.client())
        successor = make_server_certificates(tmp_path / "successor")
        os.replace(successor.certificate, certificates.certificate)  # a moment in which the two do not fit
        os.replace(successor.key, certificates.key)
        loop = asyncio.get_running_loop()
        changed_s = loop.time()
        with caplog.at_level(logging.INFO):
            await until(lambda: "TLS files were read again" in caplog.text)
        assert loop.time() - changed_s < 1 + 5  # a second, and what a busy machine adds
        await echo(await serving.connect(successor.client()))
        await refused(serving, certificates.client())
        await echo(standing)
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_files_that_cannot_be_used_leave_the_old_ones_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = make_server_certificates(tmp_path / "server")
    good = certificates.key.read_bytes()
    async with served(certificates.server()) as serving:
        await echo(await serving.connect(certificates.client()))
        certificates.key.write_text("no key")
        await until(lambda: "TLS files cannot be used, those from before stay in use" in caplog.text)
        for _ in range(3):
            await asyncio.wait_for(echo(await serving.connect(certificates.client())), 20)
        certificates.certificate.unlink()
        await until(lambda: caplog.text.count("TLS files cannot be used") == 2)
        assert str(certificates.certificate) in caplog.text
        await echo(await serving.connect(certificates.client()))
        errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert len(errors) == 2
        assert good not in caplog.text.encode()
