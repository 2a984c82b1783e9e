"""open_stream: from the options of `readStream` to the reader, if this PySpark can stream at bounded rates."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.plain_errors import plain_errors
from thermocline.spark.streaming.stream_options import stream_options_from

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from thermocline.spark.streaming.stream_reader import StreamReader


@plain_errors()
def open_stream(options: Mapping[str, str], schema: StructType) -> StreamReader:
    """The reader of a stream; opens nothing yet. `schema`: what Spark made of the source's schema.

    Raises:
        InvalidRequestError: An option is wrong, or PySpark is too old.
    """
    if find_spec("pyspark.sql.streaming.datasource") is None:
        import pyspark

        raise InvalidRequestError(
            "streaming reads need PySpark 4.2 or newer, which bounds a batch; batch reads work here",
            pyspark=pyspark.__version__,
        )
    from thermocline.spark.bodies.body_columns import body_options_from
    from thermocline.spark.bodies.body_reader import BodyBatches, options_with_value
    from thermocline.spark.streaming.stream_reader import StreamReader

    bodies = body_options_from(options)
    if bodies is None:
        return StreamReader(stream_options_from(options))
    return StreamReader(stream_options_from(options_with_value(options)), bodies=BodyBatches.of(bodies, schema))
