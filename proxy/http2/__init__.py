"""HTTP/2, the serving side: frames, header compression, flow control, connections and their bounds."""

from thermocline.proxy.http2.balancers import Balancers
from thermocline.proxy.http2.frames import ErrorCode
from thermocline.proxy.http2.hpack import encode_field
from thermocline.proxy.http2.limits import Http2Limits
from thermocline.proxy.http2.server import Http2Server
from thermocline.proxy.http2.stream import Stream, StreamOwner

__all__ = ["Balancers", "ErrorCode", "Http2Limits", "Http2Server", "Stream", "StreamOwner", "encode_field"]
