"""Moving consumer groups to exactly where a bulk reader has stopped; the requests are in `processors/hand_off.py`."""
