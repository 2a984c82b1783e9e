"""Topic check: access control of requests that name a message by its place in the log.

Which topic the message is of is known when it was read. The processor then asks whether the user of the request may use
that topic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection

TopicCheck: TypeAlias = Callable[[Connection, RemotingCommand, str], None]
"""Raises PermissionDeniedError when it may not."""
