"""`python -m thermocline.localstack KIND`: run an S3 server until Ctrl-C, with one bucket in it."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
from pathlib import Path

from thermocline.localstack.errors import LocalStackError
from thermocline.localstack.s3_server import SERVER_KINDS, UNFIT_RECIPES, start_server


def main(arguments: list[str] | None = None) -> int:
    """Start the server, print how to reach it, wait for a signal."""
    parser = argparse.ArgumentParser(prog="python -m thermocline.localstack", description=__doc__)
    parser.add_argument("kind", choices=(*SERVER_KINDS, *UNFIT_RECIPES))
    parser.add_argument("--data", type=Path, help="where objects are kept (default: a temporary directory)")
    parser.add_argument("--bucket", default="thermocline", help="a bucket to create (default: %(default)s)")
    options = parser.parse_args(arguments)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        with (
            tempfile.TemporaryDirectory(prefix="thermocline-s3-") as temporary,
            start_server(options.kind, options.data or Path(temporary)) as server,
        ):
            client = server.client()
            if options.bucket not in {bucket["Name"] for bucket in client.list_buckets().get("Buckets", [])}:
                client.create_bucket(Bucket=options.bucket)
            client.close()
            print(
                f"ready kind={server.kind} endpoint={server.endpoint} bucket={options.bucket}"
                f" access_key={server.access_key} secret_key={server.secret_key} region={server.region}",
                flush=True,
            )
            stopped.wait()
    except LocalStackError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
