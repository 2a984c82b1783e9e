"""Helper answers: passes an error of a helper process to the hot process, as the same kind of error.

    helper                                       over the socket                hot process raises
    InvalidRequestError with a code of its own   that code                      the error that the code stands for
    any other InvalidRequestError                REFUSED                        InvalidRequestError
    everything else                              as `error_table` says          UnavailableError

Requests of the first two kinds can never succeed: the client gets an error that is not retryable. One of the third kind
may succeed later: damage may be repaired, the object store may answer again, and a helper that a bug has ended is
started again. A missing object is of the third kind too: it may have been replaced, which the next attempt finds out.

What needs no answer and cannot be taken in closes the connection: half of a table may be taken in, and the next one
builds upon the whole. The helper ends then, and its successor is sent everything.
"""

from __future__ import annotations

import inspect
import logging

from thermocline.broker.helpers.helper_protocol import HelperResponseCode
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, RequestHandler
from thermocline.remoting.error_table import RESPONSE_CODES, response_code
from thermocline.remoting.errors import InvalidRequestError, MQError, ObjectNotFoundError, UnavailableError
from thermocline.remoting.response_code import ResponseCode

logger = logging.getLogger(__name__)

_REFUSALS: dict[int, type[MQError]] = {
    code: error
    for error, code in RESPONSE_CODES.items()
    if issubclass(error, InvalidRequestError) and code != ResponseCode.SYSTEM_ERROR
} | {HelperResponseCode.REFUSED: InvalidRequestError}


class RefusingHandler:
    """A helper's request handler; its answers tell refusals apart from retryable errors."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler

    async def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """See RequestHandler."""
        try:
            answer = self._handler.handle(connection, command)
            return await answer if inspect.isawaitable(answer) else answer
        except InvalidRequestError as error:
            return refusal(command, error)
        except UnavailableError:
            raise
        except Exception:
            if not command.is_oneway:
                raise
            logger.exception("message of the broker not taken in, this helper begins anew code=%d", command.code)
            connection.abort()
            return None

    def connection_opened(self, connection: Connection) -> None:
        """See RequestHandler."""
        self._handler.connection_opened(connection)

    def connection_closed(self, connection: Connection) -> None:
        """See RequestHandler."""
        self._handler.connection_closed(connection)


def refusal(command: RemotingCommand, error: InvalidRequestError) -> RemotingCommand:
    """The answer of a helper whose handler raised `error`."""
    code = response_code(error)
    if type(error) is ObjectNotFoundError:
        code = ResponseCode.SYSTEM_BUSY
    elif code not in _REFUSALS:
        code = HelperResponseCode.REFUSED
    return RemotingCommand.response(command, code, remark=str(error))


def check_answer(response: RemotingCommand, *, role: str) -> None:
    """Return when the helper has executed the request.

    Raises:
        InvalidRequestError: It says that the request is wrong.
        UnavailableError: There is no answer now.
    """
    if response.code == ResponseCode.SUCCESS:
        return
    if response.code in _REFUSALS:
        raise _REFUSALS[response.code](response.remark or "refused by the helper process")
    raise UnavailableError(response.remark or "no answer from the helper process", role=role)
