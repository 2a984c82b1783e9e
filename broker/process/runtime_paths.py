"""Runtime folder: the folder of a broker's unix socket, with a path short enough for one (107 bytes).

THERMOCLINE_RUNTIME_DIR, else XDG_RUNTIME_DIR/thermocline, else a folder of this user's in the temporary directory.
It is private: made or set to mode 0700, and refused when another user owns it or could write to it.
"""

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from thermocline.remoting.errors import InvalidParameterError
from thermocline.store.files import OTHERS

SOCKET_PATH_BYTES_MAX = 107


def runtime_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder, made when it is missing.

    Raises:
        InvalidParameterError: It is not ours, or others may write to it.
    """
    configured = environment.get("THERMOCLINE_RUNTIME_DIR")
    if configured:
        folder = Path(configured)
    elif environment.get("XDG_RUNTIME_DIR"):
        folder = Path(environment["XDG_RUNTIME_DIR"]) / "thermocline"
    else:
        folder = Path(tempfile.gettempdir()) / f"thermocline-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidParameterError("the runtime folder must be private to this user", folder=str(folder))
    if status.st_mode & OTHERS:
        folder.chmod(0o700)
    return folder


def socket_path(folder: Path, *, store_uuid: str, kind: str = "") -> str:
    """The socket of one store's broker; `kind` tells one from the others.

    Raises:
        InvalidParameterError: The path is too long for a unix socket.
    """
    path = str(folder / f"{store_uuid[:16]}{kind}.sock")
    if len(path.encode()) > SOCKET_PATH_BYTES_MAX:
        raise InvalidParameterError("set THERMOCLINE_RUNTIME_DIR to a shorter folder", path=path)
    return path
