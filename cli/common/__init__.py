"""Common: how commands connect, print and parse."""
