"""The port for remoting clients: they use the proxy as their NameServer and as every broker."""

from thermocline.proxy.remoting.client_session import SessionLimits
from thermocline.proxy.remoting.pop_client import PopLimits
from thermocline.proxy.remoting.push_by_pop import PopOptions
from thermocline.proxy.remoting.remoting_port import RemotingOptions, RemotingPort

__all__ = ["PopLimits", "PopOptions", "RemotingOptions", "RemotingPort", "SessionLimits"]
