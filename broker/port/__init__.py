"""Port: the port that clients reach, and what answers on it while the broker's parts are made."""

from thermocline.broker.port.listener import Listener

__all__ = ["Listener"]
