"""LiveQuotas: follows the setting `quotas` in the proxy's configuration file while the proxy runs.

When the file has changed (remoting/tls/file_changes.py), its quotas count; those that stay as they are keep what was
taken from them. A file that cannot be used changes nothing and is named in the log. Other settings in it count at the
next start, which is in the log, too.
Belongs to the proxy's event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from thermocline.proxy.access import QuotaCheck
from thermocline.proxy.settings import QUOTAS, ProxyConfig, file_properties
from thermocline.remoting.errors import SettingError
from thermocline.remoting.tls import CHECK_INTERVAL_S, FileChanges

__all__ = ["LiveQuotas"]

logger = logging.getLogger(__name__)


class LiveQuotas:
    """See the module."""

    def __init__(self, config: ProxyConfig, quotas: QuotaCheck) -> None:
        """`config.quotas_file`: the file; empty: there is none to follow."""
        self._config = config
        self._path = Path(config.quotas_file)
        self._quotas = quotas
        self._timer: asyncio.TimerHandle | None = None
        self._changes = FileChanges([config.quotas_file])
        self._values: Mapping[str, str] = {}
        """All settings of the file as it was read last."""

    def start(self) -> None:
        """Follow the file from now on: also what was changed since the settings were read."""
        if self._config.quotas_file:
            self._read()
            self._check_soon()

    def close(self) -> None:
        """Follow it no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_soon(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(CHECK_INTERVAL_S, self._check)

    def _check(self) -> None:
        if self._changes.are_settled():
            self._read()
        self._check_soon()

    def _read(self) -> None:
        try:
            values = file_properties(str(self._path), self._path.read_bytes()).values
            config = replace(self._config, quotas=values.get(QUOTAS, ""))
        except (OSError, SettingError) as error:
            logger.warning("the configuration file cannot be used, its last quotas count: %s", error)
            return
        others = sorted(
            name for name in {*values, *self._values} - {QUOTAS} if values.get(name) != self._values.get(name)
        )
        if self._values and others:
            logger.warning("changed settings count at the next start: %s", " ".join(others))
        self._values = values
        if config.quotas != self._config.quotas:
            self._config = config
            self._quotas.change(config.quotas)
            logger.info("quotas changed path=%s", self._path)
