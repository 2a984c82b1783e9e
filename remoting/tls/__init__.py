"""TLS: what a client trusts and shows, and the terminator that ends the TLS of a server's connections."""

from thermocline.remoting.tls.certificate_files import read_tls_file
from thermocline.remoting.tls.client_context import ClientTls
from thermocline.remoting.tls.server_context import check_files, make_server_context
from thermocline.remoting.tls.terminator import run_terminator
from thermocline.remoting.tls.terminator_thread import ThreadedTls
from thermocline.remoting.tls.tls_front import TlsFront
from thermocline.remoting.tls.tls_options import TlsOptions, outgoing_options

__all__ = [
    "ClientTls",
    "ThreadedTls",
    "TlsFront",
    "TlsOptions",
    "check_files",
    "make_server_context",
    "outgoing_options",
    "read_tls_file",
    "run_terminator",
]
