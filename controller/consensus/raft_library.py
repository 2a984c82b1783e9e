"""Raft library: PySyncObj, without what its import changes in the process.

Version 0.3.17 replaces `socket.inet_ntop` by a function for Windows on every system, after which no binary address can
be shown, and two methods of the unpickler that is written in Python. Both are put back here, so no other module imports
PySyncObj. It has no types.
"""

import pickle
import socket

_inet_ntop = socket.inet_ntop
_unpickler_methods = dict(pickle._Unpickler.dispatch)
try:
    import pysyncobj.syncobj as syncobj
    from pysyncobj.config import FAIL_REASON, SERIALIZER_STATE, SyncObjConf
    from pysyncobj.journal import Journal as LibraryJournal
    from pysyncobj.node import Node
    from pysyncobj.transport import Transport
finally:
    socket.inet_ntop = _inet_ntop
    pickle._Unpickler.dispatch.update(_unpickler_methods)

__all__ = [
    "FAIL_REASON",
    "SERIALIZER_STATE",
    "LibraryJournal",
    "Node",
    "SyncObjConf",
    "Transport",
    "syncobj",
]
