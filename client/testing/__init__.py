"""For users' own tests: a RocketMQ cluster in one object, on real sockets, with everything in memory."""

from thermocline.client.testing.fake_broker import FakeBroker

__all__ = ["FakeBroker"]
