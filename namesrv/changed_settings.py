"""Changed settings: the file of settings that were changed while a daemon ran, and the change itself.

`mqadmin updateNamesrvConfig` and `updateControllerConfig` send properties text; what a running daemon can follow is
durable before the answer. Unknown names are passed over. An empty path keeps nothing.
"""

from __future__ import annotations

import logging
from typing import TypeVar

from thermocline.namesrv.port_config import PortConfig
from thermocline.namesrv.state_file import StateFile
from thermocline.remoting.settings import format_config_text, parse_config_text

logger = logging.getLogger(__name__)

C = TypeVar("C", bound=PortConfig)


def change_settings(config: C, body: bytes, *, kept_in: StateFile, by: str) -> C:
    """The settings after a change by properties text; the file has it. `by`: the peer's address, for the log.

    Raises:
        PermissionDeniedError, InvalidParameterError: As PortConfig.updated; nothing changes.
        UnavailableError: The file cannot be written; nothing changes.
    """
    properties = parse_config_text(body.decode("utf-8", "replace"))
    updated = config.updated(properties)
    if updated is not config:
        names = updated.live_names(properties)
        kept = parse_config_text((kept_in.load() or b"").decode("utf-8", "replace"))
        kept.update({name: properties[name] for name in names})
        kept_in.save(format_config_text(kept).encode())
        logger.info("settings changed by=%s names=%s", by, ",".join(sorted(names)))
    return updated
