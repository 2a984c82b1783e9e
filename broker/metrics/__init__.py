"""Figures for monitoring systems, as Prometheus reads them."""
