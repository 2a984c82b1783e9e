"""What commands ask a proxy's HTTP port: HTTP/1.1 with Basic authentication, as Prometheus asks it.

TLS and keys are those of every command.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
from typing import Any

from thermocline.cli.common.application import Application
from thermocline.remoting.errors import PermissionDeniedError, UnavailableError
from thermocline.remoting.socket_address import format_address, parse_address

__all__ = ["ask_proxy"]

ANSWER_BYTES_MAX = 64 << 20


def ask_proxy(app: Application, address: str, path: str, *, member: str) -> dict[str, Any]:
    """Return the answer of a proxy's HTTP port to GET, an object with this member.

    Raises:
        InvalidParameterError: The address is none.
        PermissionDeniedError: The keys are not those of a user that may read it.
        UnavailableError: There is no such port, or it is another server's.
    """
    status, body = _get(app, address, path)
    if status == http.HTTPStatus.UNAUTHORIZED:
        raise PermissionDeniedError("the keys are not those of a user with Get on the cluster", address=address)
    if status != http.HTTPStatus.OK:
        raise UnavailableError("the port is none of a proxy", address=address, status=status)
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict) or member not in found:
        raise UnavailableError("the port is none of a proxy", address=address, reason=f"its answer has no {member}")
    return found


def _get(app: Application, address: str, path: str) -> tuple[int, bytes]:
    """Status and body."""
    host, port = parse_address(address)
    connection = http.client.HTTPConnection(host, port)
    headers = {}
    if app.credentials is not None:
        keys = f"{app.credentials.access_key}:{app.credentials.secret_key}"
        headers["Authorization"] = f"Basic {base64.b64encode(keys.encode()).decode()}"
    try:
        connection.sock = _connected(app, host, port)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(ANSWER_BYTES_MAX)
    except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: the host is none
        reason = "it is no HTTP port" if isinstance(error, http.client.HTTPException) else str(error)
        raise UnavailableError(
            "the proxy does not answer", address=format_address(host, port), reason=reason
        ) from error
    finally:
        connection.close()


def _connected(app: Application, host: str, port: int) -> socket.socket:
    from thermocline.remoting.tls import ClientTls

    plain = socket.create_connection((host, port), timeout=app.timeout_ms / 1000)
    if app.tls is None:
        return plain
    tls = ClientTls(app.tls)
    try:
        return tls.context().wrap_socket(plain, server_hostname=tls.server_name(host))
    except (OSError, ssl.SSLError):
        plain.close()
        raise
