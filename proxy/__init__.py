"""The proxy: RocketMQ's gRPC clients served over a cluster of brokers."""
