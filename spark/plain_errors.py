"""plain_errors: what a user of Spark reads of an error of ours is its sentence, not the tracebacks that led to it.

Spark shows the text of a Python traceback, and Python puts the causes first: of an endpoint that is away a user would
read two screens of an S3 client's and an HTTP client's frames before the sentence that names object and endpoint. The
sentence says what they said (`reason`); they themselves go to the log at DEBUG.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from thermocline.remoting.errors import MQError

logger = logging.getLogger(__name__)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Stands where Spark calls us: an error of ours leaves without causes, and with the frames of this place alone."""
    try:
        yield
    except MQError as error:
        logger.debug("what led to an error", exc_info=error)
        raise copy.copy(error) from None
