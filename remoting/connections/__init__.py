"""Connections: a connection from its socket to its requests, the server that accepts it, and its bounds."""

from thermocline.remoting.connections.connection import RECEIVE_BYTES, Connection, ConnectionLimits, Traffic, close_all
from thermocline.remoting.connections.descriptor_limit import CONNECTIONS_MOST, DescriptorWatch, raise_descriptor_limit
from thermocline.remoting.connections.dispatcher import Answer, Dispatcher, Handler, Processor
from thermocline.remoting.connections.request_handler import ChunkHandler, RequestHandler
from thermocline.remoting.connections.server import RemotingServer
from thermocline.remoting.connections.stop_signals import stop_signals

__all__ = [
    "CONNECTIONS_MOST",
    "RECEIVE_BYTES",
    "Answer",
    "ChunkHandler",
    "Connection",
    "ConnectionLimits",
    "DescriptorWatch",
    "Dispatcher",
    "Handler",
    "Processor",
    "RemotingServer",
    "RequestHandler",
    "Traffic",
    "close_all",
    "raise_descriptor_limit",
    "stop_signals",
]
