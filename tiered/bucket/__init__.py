"""Looking into a bucket without any broker: what is there, its messages, whether a part of it is whole. Reads only."""
