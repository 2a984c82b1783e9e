"""Thermocline: an Apache RocketMQ 5 compatible broker whose history lives in object storage."""
