"""TLS: what clients and servers trust and show; the gate that gives a server's connections their TLS."""

from thermocline.remoting.tls.certificate_files import read_tls_file
from thermocline.remoting.tls.client_context import ClientTls
from thermocline.remoting.tls.file_changes import CHECK_INTERVAL_S, FileChanges
from thermocline.remoting.tls.tls_gate import TlsGate
from thermocline.remoting.tls.tls_options import TlsOptions, outgoing_options

__all__ = [
    "CHECK_INTERVAL_S",
    "ClientTls",
    "FileChanges",
    "TlsGate",
    "TlsOptions",
    "outgoing_options",
    "read_tls_file",
]
