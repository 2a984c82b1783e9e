"""Scrubbing: reads what a broker's cold tier consists of, says what is wrong, and makes good again what can be.

`scrubber.py` runs a scrub; `bucket_scrub.py` does it on a bucket without a broker and changes nothing; `healer.py`
belongs to the tier process, which alone may write.
"""
