"""Log lines of a broker's processes: time, level, process, logger, then a fixed event and its fields."""

import logging
import sys

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def configure_logging(level: str, *, process_name: str) -> None:
    """Write everything from `level` up to standard error, one line an event."""
    assert level in LEVELS
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter(
            f"%(asctime)s.%(msecs)03d %(levelname)-7s {process_name} %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S"
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Libraries below say at INFO what belongs at DEBUG.
    for name in ("aiobotocore", "botocore", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
