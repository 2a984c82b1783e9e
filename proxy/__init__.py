"""The proxy: RocketMQ's clients, by gRPC and by remoting, served over a cluster or beside one broker."""
