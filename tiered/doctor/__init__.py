"""The store doctor: what a store really does, found out by trying it.

`examination.py` is `thermocline store doctor`; `fencing_check.py` the part of it that a broker does when it starts.
"""
