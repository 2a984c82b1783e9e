"""Configuration of a proxy: its sources of settings, put together. It loads no protobuf and opens no socket.

below everything else      for a proxy in a broker's process group: what the broker's settings say
NAMESRV_ADDR, rmq-proxy.json, tls.properties, environment, flags      the later one wins

The quotas of rmq-proxy.json are followed while the proxy runs, unless environment or flags set others.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from thermocline.proxy.settings import (
    QUOTAS,
    ProxyConfig,
    environment_properties,
    file_properties,
    load_proxy_config,
    secret_names,
)
from thermocline.remoting.connections import FLAGS, warn_of_place
from thermocline.remoting.errors import SettingError
from thermocline.remoting.settings import PropertySource
from thermocline.remoting.tls import read_tls_file

__all__ = ["load_config"]

logger = logging.getLogger(__name__)

NAMESRV_VARIABLE = "NAMESRV_ADDR"
MODE, BESIDE_A_BROKER = "proxyMode", "LOCAL"


def load_config(
    *,
    config_path: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, str],
    broker_source: PropertySource | None = None,
) -> ProxyConfig:
    """Put the sources of settings together; `flags` are settings by property name.

    `broker_source`: what the settings of the broker say, in whose process group the proxy runs; that is RocketMQ's
    proxyMode=LOCAL, which the file may then name.

    Raises:
        SettingError: A name is unknown, or a value cannot be one or promises what is not built; the error names the
            place.
    """
    sources = []
    if broker_source is not None:
        sources.append(broker_source)
    elif environment.get(NAMESRV_VARIABLE):
        values = {"namesrvAddr": environment[NAMESRV_VARIABLE]}
        sources.append(PropertySource(place=NAMESRV_VARIABLE, values=values))
    if config_path is not None:
        try:
            source = file_properties(str(config_path), config_path.read_bytes())
        except OSError as error:
            text = f"the configuration file cannot be read: {error.strerror}"
            raise SettingError(text, path=str(config_path)) from error
        sources.append(source if broker_source is None else _without_mode(source))
    above = [environment_properties(environment), PropertySource(place=FLAGS, values=flags)]
    sources += above
    loaded = load_proxy_config(sources)
    tls_path = loaded.config.tls.config_file
    tls_values = read_tls_file(tls_path)
    if tls_values:
        sources.insert(len(sources) - 2, PropertySource(place=tls_path, values=tls_values))
        loaded = load_proxy_config(sources)
    for source in sources:
        if source is not broker_source:  # the broker has warned of its own places
            warn_of_place(source.place, secret_names(source))
    if loaded.ignored:
        logger.warning("settings without effect here: %s", " ".join(loaded.ignored))
    if config_path is None or any(QUOTAS in source.values for source in above):
        return loaded.config
    return replace(loaded.config, quotas_file=str(config_path.absolute()))


def _without_mode(source: PropertySource) -> PropertySource:
    """The source without a mode that says what is so already."""
    values = {
        name: value for name, value in source.values.items() if name != MODE or value.strip().upper() != BESIDE_A_BROKER
    }
    return PropertySource(place=source.place, values=values)
