"""A reverse proxy before an S3 server, which does to requests what proxies, gateways and policies do.

    async with S3Proxy(bucket, drops=("If-None-Match",)) as proxy:
        ... proxy.bucket ...    # the same bucket, reached through the proxy

It signs requests anew, so that a server that checks signatures takes those from which something was dropped.
"""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from types import TracebackType

import aiohttp
import yarl
from aiohttp import web
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.fixtures_s3 import S3Bucket

BODY_BYTES_MAX = 64 * 1024 * 1024
NOT_FORWARDED = frozenset({"host", "authorization", "x-amz-date", "content-length", "connection", "transfer-encoding"})
NOT_RETURNED = frozenset({"content-length", "transfer-encoding", "connection", "keep-alive"})


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """What a rule may look at."""

    method: str
    path: str
    query: str
    headers: dict[str, str]


Forward = Callable[[], Awaitable[web.Response]]
Rule = Callable[[ProxiedRequest, Forward], Awaitable[web.Response]]


def s3_error(status: int, code: str) -> web.Response:
    """An error as S3 answers it."""
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>by the proxy</Message></Error>'
    return web.Response(status=status, text=body, content_type="application/xml")


async def pass_on(_request: ProxiedRequest, forward: Forward) -> web.Response:
    """The rule that changes nothing."""
    return await forward()


class S3Proxy:
    """See the module's header. `rule` may answer in the server's stead, before it carries a request out or after."""

    def __init__(self, bucket: S3Bucket, *, drops: tuple[str, ...] = (), rule: Rule = pass_on) -> None:
        self._behind = bucket
        self._dropped = frozenset(name.lower() for name in drops)
        self._rule = rule
        self._credentials = Credentials(bucket.access_key, bucket.secret_key)
        self.signed_wrongly: str | None = None
        """Requests whose path holds this are signed with a secret that the server does not know; "" is every one."""
        self.methods: Counter[str] = Counter()
        self.seen: list[tuple[str, str, str]] = []
        """Method, path and query of each request."""
        self.drop_count = 0

    async def __aenter__(self) -> S3Proxy:
        self._session = aiohttp.ClientSession(auto_decompress=False)
        application = web.Application(client_max_size=BODY_BYTES_MAX)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.bucket = replace(self._behind, endpoint=f"http://127.0.0.1:{port}")
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self._session.close()
        await asyncio.sleep(0)  # what is closed lets go of its sockets in the loop's next round

    async def _handle(self, request: web.Request) -> web.Response:
        self.methods[request.method] += 1
        self.seen.append((request.method, request.path, request.query_string))
        body = await request.read()
        headers = {}
        for name, value in request.headers.items():
            if name.lower() in self._dropped:
                self.drop_count += 1
            elif name.lower() not in NOT_FORWARDED:
                headers[name] = value
        seen = ProxiedRequest(request.method, request.path, request.query_string, dict(request.headers))
        return await self._rule(seen, lambda: self._forward(request, headers, body))

    async def _forward(self, request: web.Request, headers: dict[str, str], body: bytes) -> web.Response:
        url = self._behind.endpoint + request.raw_path
        signed = AWSRequest(method=request.method, url=url, data=body, headers=headers)
        credentials = self._credentials
        if self.signed_wrongly is not None and self.signed_wrongly in request.path:
            credentials = Credentials(self._behind.access_key, "a-secret-that-was-taken-back")
        S3SigV4Auth(credentials, "s3", self._behind.region).add_auth(signed)
        async with self._session.request(
            request.method,
            yarl.URL(url, encoded=True),
            data=io.BytesIO(body) if body else None,
            headers=dict(signed.headers.items()),
        ) as answer:
            content = await answer.read()
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in NOT_RETURNED}
            if request.method == "HEAD":
                kept["Content-Length"] = answer.headers.get("Content-Length", "0")
            return web.Response(status=answer.status, body=content, headers=kept)
