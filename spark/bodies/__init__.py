"""Bodies into columns: JSON, Avro and Protobuf, and what does not parse into a column of its own."""
