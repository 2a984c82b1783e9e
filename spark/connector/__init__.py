"""Hadoop's s3a connector, which PySpark's wheel lacks: which jars it is, and getting them as Maven would."""
