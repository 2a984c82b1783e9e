"""Spark: commands that run Spark jobs."""
