"""`thermocline spark`: jobs on the cold tier, for people who write no Spark code."""

from __future__ import annotations

import click

from thermocline.cli.spark.spark_catch_up import catch_up
from thermocline.cli.spark.spark_compare import compare
from thermocline.cli.spark.spark_counts import counts
from thermocline.cli.spark.spark_hand_off import hand_off
from thermocline.cli.spark.spark_key_history import key_history
from thermocline.cli.spark.spark_lag import lag
from thermocline.cli.spark.spark_republish import republish

__all__ = ["spark"]


@click.group(short_help="Jobs on the cold tier with Spark.")
def spark() -> None:
    """Run jobs on the cold tier with Spark: on this machine, or in the session of `spark-submit`.

    Needs PySpark (in a checkout: pip install '.[spark]'; the package is not published) and Java 17 or newer.

    \b
    Example:
      thermocline spark catch-up orders --from file:///data/cold --to ./orders
      thermocline spark hand-off ./orders.receipt.json --group dashboards
    """


for _command in (catch_up, hand_off, counts, lag, key_history, republish, compare):
    spark.add_command(_command)
