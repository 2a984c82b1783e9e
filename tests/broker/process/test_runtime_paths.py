"""The path of a broker's unix socket."""

from pathlib import Path

import pytest

from thermocline.broker.process.runtime_paths import SOCKET_PATH_BYTES_MAX, runtime_folder, socket_path
from thermocline.remoting.errors import InvalidParameterError


def test_the_variables_win_in_order(tmp_path: Path) -> None:
    own, session = tmp_path / "own", tmp_path / "session"
    both = {"THERMOCLINE_RUNTIME_DIR": str(own), "XDG_RUNTIME_DIR": str(session)}
    assert runtime_folder(both) == own
    assert runtime_folder({"XDG_RUNTIME_DIR": str(session)}) == session / "thermocline"
    assert own.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(InvalidParameterError, match="private"):
        runtime_folder({"THERMOCLINE_RUNTIME_DIR": str(shared)})


def test_a_path_too_long_for_a_socket_is_refused() -> None:
    uuid = "0123456789abcdef0123456789abcdef"
    assert socket_path(Path("/run/user"), store_uuid=uuid) == "/run/user/0123456789abcdef.sock"
    with pytest.raises(InvalidParameterError, match="shorter"):
        socket_path(Path("/" + "x" * SOCKET_PATH_BYTES_MAX), store_uuid=uuid)
