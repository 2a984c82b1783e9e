"""Errors of timers, beyond `remoting.errors`: those that callers handle differently."""

from __future__ import annotations

from thermocline.remoting.errors import MQError


class TimerCongestedError(MQError):
    """Too many messages are due at the same time already. SYSTEM_ERROR for a client, as RocketMQ answers."""
