"""Named clusters: the clusters of a proxy beside its default one, as the setting `routingClusters` has them.

    [{"name": "east", "namesrvAddr": "10.1.0.5:9876;10.1.0.6:9876"},
     {"name": "blue", "namesrvAddr": "10.0.0.5:9876", "rocketMQClusterName": "Blue",
      "credentials": {"accessKey": "proxy", "secretKey": "..."}, "tlsConfigFile": "/etc/blue/tls.properties"}]

A named cluster is a group of NameServers and a RocketMQ cluster name in it (DefaultCluster without one): brokers of
other names there are no part of it. Without credentials, or a file of TLS settings, of its own the proxy's count.
"""

from __future__ import annotations

import re
from dataclasses import fields

import msgspec

from thermocline.proxy.routing.broker_names import DEFAULT_CLUSTER
from thermocline.remoting.clients import NameServerSource, split_addresses
from thermocline.remoting.errors import InvalidParameterError, SettingError
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.settings import PropertySource, SettingNames, TlsConfig
from thermocline.remoting.tls import TlsOptions, outgoing_options, read_tls_file

__all__ = ["NamedCluster", "parse_clusters"]

SETTING = "routingClusters"
CLUSTERS_MAX = 16
NAME_FORM = re.compile(r"[A-Za-z0-9_-]{1,64}")
TLS_FIELDS = {item.metadata["name"]: item for item in fields(TlsConfig)}


class _Keys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    access_key: str = msgspec.field(name="accessKey")
    secret_key: str = msgspec.field(name="secretKey")


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cluster as the setting has it."""

    name: str
    namesrv: str = msgspec.field(name="namesrvAddr")
    cluster_name: str = msgspec.field(default="DefaultCluster", name="rocketMQClusterName")
    credentials: _Keys | None = None
    tls_path: str = msgspec.field(default="", name="tlsConfigFile")


class NamedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster. `credentials` and `tls` count where `has_own_keys` and `has_own_tls` say so, else the proxy's."""

    name: str
    namesrv: tuple[str, ...]
    cluster_name: str
    credentials: Credentials | None = None
    has_own_tls: bool = False
    tls: TlsOptions | None = None


def parse_clusters(text: str) -> tuple[NamedCluster, ...]:
    """The clusters of the setting's text; none for an empty one.

    Raises:
        SettingError: It is no list of clusters, two have one name, or a file of TLS settings cannot be used.
    """
    if not text.strip():
        return ()
    try:
        entries = msgspec.json.decode(text, type=list[_Entry])
    except msgspec.DecodeError as error:
        # The error shows no value: the setting may hold keys.
        raise SettingError(f"{SETTING} is no JSON list of clusters: {error}") from None
    if len(entries) > CLUSTERS_MAX:
        raise SettingError(f"{SETTING} names more than {CLUSTERS_MAX} clusters", count=len(entries))
    found: dict[str, NamedCluster] = {}
    for entry in entries:
        if NAME_FORM.fullmatch(entry.name) is None:
            raise SettingError(f"{SETTING}: a name has 1 to 64 letters, digits, - or _", name=entry.name[:64])
        if entry.name == DEFAULT_CLUSTER or entry.name in found:
            raise SettingError(f"{SETTING}: two clusters have one name", name=entry.name)
        found[entry.name] = _cluster(entry)
    return tuple(found.values())


def _cluster(entry: _Entry) -> NamedCluster:
    addresses = split_addresses(entry.namesrv)
    try:
        source = NameServerSource.parse(addresses)
    except InvalidParameterError as error:
        raise SettingError(f"{SETTING}: {error.message}", name=entry.name, **error.context) from error
    if not source.is_fixed:
        raise SettingError(f"{SETTING}: namesrvAddr has to be a list of addresses", name=entry.name)
    keys = entry.credentials
    return NamedCluster(
        name=entry.name,
        namesrv=tuple(addresses),
        cluster_name=entry.cluster_name,
        credentials=None if keys is None else Credentials(access_key=keys.access_key, secret_key=keys.secret_key),
        has_own_tls=bool(entry.tls_path),
        tls=_tls(entry.tls_path) if entry.tls_path else None,
    )


def _tls(path: str) -> TlsOptions | None:
    """What a file of TLS settings says about connections to NameServers and brokers."""
    source = PropertySource(place=path, values=read_tls_file(path))
    gathered = SettingNames("", official={}, fields_by_name=TLS_FIELDS).gather([source])
    try:
        return outgoing_options(TlsConfig(**gathered.tls))
    except InvalidParameterError as error:
        raise SettingError(error.message, path=path, **error.context) from error
