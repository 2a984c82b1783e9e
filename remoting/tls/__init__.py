"""TLS: what clients and servers trust and show; the gate that gives a server's connections their TLS."""

from thermocline.remoting.tls.certificate_files import file_marks, read_tls_file
from thermocline.remoting.tls.client_context import ClientTls
from thermocline.remoting.tls.tls_gate import TlsGate
from thermocline.remoting.tls.tls_options import TlsOptions, outgoing_options

__all__ = ["ClientTls", "TlsGate", "TlsOptions", "file_marks", "outgoing_options", "read_tls_file"]
