"""The store doctor: what a store really does, found out by trying it.

`examination.py` is `thermocline store doctor`; `fencing_check.py` the part of it that a broker does when it starts.
"""

from thermocline.tiered.doctor.bench import is_probe
from thermocline.tiered.doctor.examination import ExaminationOptions, FencingMode, Races, Report, examine
from thermocline.tiered.doctor.fencing_check import check_fencing, races_for

__all__ = ["ExaminationOptions", "FencingMode", "Races", "Report", "check_fencing", "examine", "is_probe", "races_for"]
