"""Static topics: logic queues that keep their number and offsets while brokers come and go."""
