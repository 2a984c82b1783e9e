"""gRPC MessagingService v2, as RocketMQ 5 clients speak it."""
