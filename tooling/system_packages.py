"""Programs that come from the operating system: Java, Maven, a C compiler, Node, HAProxy.

Rule: look first; install the distribution's package only as root on Debian and its kin; otherwise say in one sentence
what to install. `find_*` only look, `ensure_*` may install.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from thermocline.localstack import ToolMissingError

JAVA_VERSION_MIN = 17
JAVA_DIRECTORY = Path("/usr/lib/jvm")
SYSTEM_PROGRAMS = "/usr/sbin:/usr/local/sbin"


def find_java_home(*, with_compiler: bool) -> Path:
    """The directory of a Java 17+ runtime, or of a whole JDK.

    Raises:
        ToolMissingError: There is none.
    """
    candidates = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("javac" if with_compiler else "java")
    if on_path:
        candidates.append(Path(on_path).resolve().parent.parent)
    candidates += sorted(JAVA_DIRECTORY.glob("*"), reverse=True)
    for home in candidates:
        if _java_version(home) >= JAVA_VERSION_MIN and (not with_compiler or (home / "bin" / "javac").exists()):
            return home
    kind = "JDK" if with_compiler else "Java runtime"
    raise ToolMissingError(f"a {kind} of version {JAVA_VERSION_MIN} or newer is needed: install one or set JAVA_HOME.")


def find_maven() -> Path:
    """The `mvn` command.

    Raises:
        ToolMissingError: There is none.
    """
    return _find_program("mvn", "Maven is needed to fetch Java libraries: install it and put `mvn` on the PATH.")


def find_c_compiler() -> Path:
    """A C compiler.

    Raises:
        ToolMissingError: There is none.
    """
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        raise ToolMissingError("a C compiler is needed to build the load generator: install gcc or clang.")
    return Path(found)


def find_node() -> Path:
    """The `node` command.

    Raises:
        ToolMissingError: There is none.
    """
    return _find_program("node", "Node is needed to run a client that is written for it: install nodejs.")


def find_npm() -> Path:
    """The `npm` command, which comes with Node or beside it.

    Raises:
        ToolMissingError: There is none.
    """
    find_node()
    return _find_program("npm", "npm is needed to install a client that is written for Node: install npm.")


def find_haproxy() -> Path:
    """The `haproxy` command, which Debian has where users' PATHs do not lead.

    Raises:
        ToolMissingError: There is none.
    """
    found = shutil.which("haproxy") or shutil.which("haproxy", path=SYSTEM_PROGRAMS)
    if found is None:
        raise ToolMissingError("HAProxy is needed as a load balancer: install haproxy.")
    return Path(found)


def ensure_haproxy() -> Path:
    """`find_haproxy`, installing the package where that may be done."""
    return _ensure(find_haproxy, "haproxy")


def ensure_npm() -> Path:
    """`find_npm`, installing Node and npm where that may be done."""
    return _ensure(find_npm, "nodejs", "npm")


def _find_program(name: str, reason: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise ToolMissingError(reason)
    return Path(found)


def ensure_java_home(*, with_compiler: bool) -> Path:
    """`find_java_home`, installing the headless package where that may be done."""
    package = "default-jdk-headless" if with_compiler else "default-jre-headless"
    return _ensure(lambda: find_java_home(with_compiler=with_compiler), package)


def ensure_maven() -> Path:
    """`find_maven`, installing the package where that may be done."""
    return _ensure(find_maven, "maven")


def ensure_c_compiler() -> Path:
    """`find_c_compiler`, installing the package where that may be done."""
    return _ensure(find_c_compiler, "gcc", "libc6-dev")


def _ensure(find: Callable[[], Path], *packages: str) -> Path:
    try:
        return find()
    except ToolMissingError:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise
    print(f"installing {' '.join(packages)}", file=sys.stderr, flush=True)
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", *command], stdout=subprocess.DEVNULL, env=environment, check=False)
    return find()


def _java_version(home: Path) -> int:
    """The feature version of the Java installation at `home`; 0 when there is none."""
    release = home / "release"
    if release.is_file() and (home / "bin" / "java").exists():
        match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release.read_text(), re.MULTILINE)
        if match:
            return int(match[1])
    java = home / "bin" / "java"
    if not java.exists():
        return 0
    answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match[1]) if match else 0
