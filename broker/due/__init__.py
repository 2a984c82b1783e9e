"""Due messages: delayed and timed messages, transactions, and the services that deliver them."""

from thermocline.broker.due import delay_service, transaction_counts
from thermocline.broker.due.delay_service import DelayService, schedule
from thermocline.broker.due.timer_opening import open_timers
from thermocline.broker.due.timer_service import TimerService
from thermocline.broker.due.timer_settings import timer_config
from thermocline.broker.due.transaction_counts import TransactionCounts
from thermocline.broker.due.transaction_opening import open_transactions, recover_open
from thermocline.broker.due.transaction_service import TransactionService

__all__ = [
    "DelayService",
    "TimerService",
    "TransactionCounts",
    "TransactionService",
    "delay_service",
    "open_timers",
    "open_transactions",
    "recover_open",
    "schedule",
    "timer_config",
    "transaction_counts",
]
