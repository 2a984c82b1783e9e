"""`thermocline spark`: jobs on the cold tier, for people who write no Spark code."""

from __future__ import annotations

import click

from thermocline.cli.spark_catch_up import catch_up

__all__ = ["spark"]


@click.group(short_help="Jobs on the cold tier with Spark.")
def spark() -> None:
    """Run jobs on the cold tier with Spark: on this machine, or in the session of `spark-submit`.

    Needs PySpark (pip install 'thermocline[spark]') and Java 17.

    \b
    Example:
      thermocline spark catch-up orders --from file:///data/cold --to ./orders
    """


spark.add_command(catch_up)
