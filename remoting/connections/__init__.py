"""Connections: a connection from its socket to its requests, the server that accepts it, and its bounds."""

from thermocline.remoting.connections.closing import close_all
from thermocline.remoting.connections.connection import RECEIVE_BYTES, Connection
from thermocline.remoting.connections.connection_limits import ConnectionLimits, Traffic
from thermocline.remoting.connections.daemon import serve_until_stopped
from thermocline.remoting.connections.descriptor_limit import CONNECTIONS_MOST, DescriptorWatch, raise_descriptor_limit
from thermocline.remoting.connections.dispatcher import Answer, Dispatcher, Handler, Processor
from thermocline.remoting.connections.exposed_secrets import FLAGS, warn_of_file, warn_of_place
from thermocline.remoting.connections.exposure import (
    LOOPBACK,
    is_loopback,
    warn_if_exposed,
    warn_if_log_is_exposed,
)
from thermocline.remoting.connections.first_byte import FirstByte, Gate, GatedConnection, OtherProtocol
from thermocline.remoting.connections.limit_counts import LimitCounts
from thermocline.remoting.connections.listening import listen
from thermocline.remoting.connections.request_handler import ChunkHandler, RequestHandler
from thermocline.remoting.connections.server import RemotingServer
from thermocline.remoting.connections.server_limits import ServerLimits, client_address
from thermocline.remoting.connections.stop_signals import STOP_SIGNALS, stop_signals, unless_stopped

__all__ = [
    "CONNECTIONS_MOST",
    "FLAGS",
    "LOOPBACK",
    "RECEIVE_BYTES",
    "STOP_SIGNALS",
    "Answer",
    "ChunkHandler",
    "Connection",
    "ConnectionLimits",
    "DescriptorWatch",
    "Dispatcher",
    "FirstByte",
    "Gate",
    "GatedConnection",
    "Handler",
    "LimitCounts",
    "OtherProtocol",
    "Processor",
    "RemotingServer",
    "RequestHandler",
    "ServerLimits",
    "Traffic",
    "client_address",
    "close_all",
    "is_loopback",
    "listen",
    "raise_descriptor_limit",
    "serve_until_stopped",
    "stop_signals",
    "unless_stopped",
    "warn_if_exposed",
    "warn_if_log_is_exposed",
    "warn_of_file",
    "warn_of_place",
]
