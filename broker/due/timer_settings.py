"""Timer settings: the timers' configuration from the broker's settings and the store's folder."""

from thermocline.broker.settings import BrokerSettings
from thermocline.timers.timer_config import TimerConfig, supported_precision_ms


def timer_config(settings: BrokerSettings) -> TimerConfig:
    """The configuration from the present settings."""
    broker = settings.broker
    return TimerConfig(
        root_path=settings.store.root_path,
        precision_ms=supported_precision_ms(broker.timer_precision_ms),
        roll_window_slots=broker.timer_roll_window_slots,
        delay_ms_max=broker.timer_delay_s_max * 1_000,
        log_file_bytes=broker.timer_log_file_bytes,
        round_interval_ms=broker.timer_round_interval_ms,
        slot_count_max=broker.timer_slot_count_max,
        topic_in_delete_key=broker.timer_topic_in_delete_key,
    )
