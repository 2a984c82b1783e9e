"""PySyncObj in a process that does other things too."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import pickle, socket
before = socket.inet_ntop, dict(pickle._Unpickler.dispatch)
import thermocline.controller.consensus
assert "pysyncobj.syncobj" in __import__("sys").modules
assert (socket.inet_ntop, dict(pickle._Unpickler.dispatch)) == before
print(socket.inet_ntop(socket.AF_INET, bytes([10, 0, 0, 1])))
"""


def test_its_import_changes_nothing_else_in_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "10.0.0.1\n"
