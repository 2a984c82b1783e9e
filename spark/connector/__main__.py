"""`python -m thermocline.spark.connector`: the jars of the s3a connector, fetched where they are missing, for `--jars`.

    spark-submit --jars "$(python -m thermocline.spark.connector)" job.py

Exit status: 0 with the paths on stdout, separated by commas; 1 with one sentence on stderr.
"""

from __future__ import annotations

import sys

from thermocline.remoting.errors import MQError
from thermocline.spark.connector.s3a_connector import connector_jars


def main() -> int:
    """Print them."""
    try:
        jars = connector_jars()
    except MQError as error:
        sys.stderr.write(f"thermocline: {error}.\n")
        return 1
    sys.stdout.write(",".join(map(str, jars)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
