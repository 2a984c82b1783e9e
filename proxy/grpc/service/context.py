"""RequestContext: who calls, as the request's metadata say it.

    x-mq-client-id        needed
    x-mq-language         any text; official clients: JAVA, CPP, DOTNET, PYTHON, GO, RUST, HTTP (Node)
    x-mq-client-version   decides one code, and is shown

Source: ContextInitPipeline.java, GrpcConstants.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from typing import Any

import msgspec

from thermocline.proxy.access import Permit
from thermocline.proxy.clients import ProxyClient
from thermocline.proxy.grpc.calls import RpcCall
from thermocline.proxy.grpc.messages import Code
from thermocline.proxy.grpc.service.statuses import CodeError
from thermocline.remoting.socket_address import Host, format_address

__all__ = ["RequestContext", "read_context"]

CLIENT_ID_CHARS_MAX = 512
LABEL_CHARS_MAX = 64


class RequestContext(msgspec.Struct, frozen=True, kw_only=True):
    """See the module."""

    client_id: str
    language: str
    version: str
    remote_host: Host
    permit: Permit | None = None
    """That the request was allowed; None without access control."""

    @property
    def username(self) -> str:
        """The user that the request proves to come from; "" without one."""
        return "" if self.permit is None else self.permit.username

    def client(self, *, kind: str, names: tuple[str, ...], settings: Any = None) -> ProxyClient:
        """The caller as a client to register; its settings are None before they have come."""
        return ProxyClient(
            client_id=self.client_id,
            kind=kind,
            language=self.language,
            version=self.version,
            remote_address=format_address(*self.remote_host),
            username=self.username,
            permit=self.permit,
            names=names,
            settings=settings,
            settings_bytes=0 if settings is None else settings.ByteSize(),
        )


def read_context(call: RpcCall, permit: Permit | None = None) -> RequestContext:
    """Return the caller of a request.

    Raises:
        CodeError: It gives no client id, or an impossible one.
    """
    metadata = call.metadata
    client_id = metadata.get("x-mq-client-id", "").strip()
    if not client_id:
        raise CodeError(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
    if len(client_id) > CLIENT_ID_CHARS_MAX:
        raise CodeError(Code.BAD_REQUEST, f"a client id has at most {CLIENT_ID_CHARS_MAX} characters")
    return RequestContext(
        client_id=client_id,
        language=metadata.get("x-mq-language", "")[:LABEL_CHARS_MAX],
        version=metadata.get("x-mq-client-version", "")[:LABEL_CHARS_MAX],
        remote_host=call.remote_host,
        permit=permit,
    )
