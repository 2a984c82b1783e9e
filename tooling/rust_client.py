"""The program of the tests that drives RocketMQ's official Rust client for gRPC, built into the cache.

Its crate is `tests/interop/rust_grpc`; the lock file there pins the client and all that it needs. The program's name
carries a digest of the crate, so a changed source or pin never meets an old program.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from thermocline.localstack import ToolMissingError
from thermocline.localstack.cache_directory import default_cache_directory
from thermocline.localstack.rust_toolchain import build_rust_folder

__all__ = ["RUST_CLIENT_NAME", "ensure_rust_client", "find_rust_client"]

RUST_CLIENT_NAME = "rocketmq-grpc-rust"
CRATE = Path(__file__).resolve().parent.parent / "tests" / "interop" / "rust_grpc"


def find_rust_client() -> Path:
    """The program, building nothing.

    Raises:
        ToolMissingError: It has not been built.
    """
    target = _target()
    if not target.is_file():
        raise ToolMissingError(f"{RUST_CLIENT_NAME} is not built: `make test` does it where there is Rust.")
    return target


def ensure_rust_client() -> Path:
    """Build the program unless it is there (some minutes, once).

    Raises:
        ToolMissingError: There is no Rust.
        LocalStackError: The build failed.
    """
    target = _target()
    build_rust_folder(CRATE, target)
    return target


def _target() -> Path:
    digest = hashlib.sha256()
    for source in (CRATE / "Cargo.toml", CRATE / "Cargo.lock", *sorted((CRATE / "src").iterdir())):
        digest.update(source.read_bytes())
    return default_cache_directory() / "bin" / f"{RUST_CLIENT_NAME}-{digest.hexdigest()[:12]}"
