"""Names that release 5.5.0 does not read, and that configuration files still have: of older releases, and of guides."""

from __future__ import annotations

from thermocline.remoting.settings import OfficialSetting, carried, honoured, refused, without_effect

__all__ = ["OLDER_NAMES"]

OLDER_NAMES: tuple[OfficialSetting, ...] = (
    carried("mapedFileSizeCommitLog", "1073741824", carrier="mappedFileSizeCommitLog"),
    carried("mapedFileSizeConsumeQueue", "6000000", carrier="mappedFileSizeConsumeQueue"),
    *honoured(
        {"abortFile": "", "storeCheckpoint": "", "storePathConsumeQueue": "", "storePathIndex": ""},
        "only the place in storePathRootDir is accepted",
    ),
    *refused("filter servers, which run classes that consumers send", {"filterServerNums": "0"}),
    *without_effect(
        "tuning of replication; the settings that ask for replicas are refused", {"haSlaveFallbehindMax": "268435456"}
    ),
    *without_effect("messageDelayLevel and timerMaxDelaySec say how far a message is delayed", {"maxDelayTime": "40"}),
    *without_effect(
        "statistics for a bill by account: they are in no answer to a client or tool",
        {
            "commercialBigCount": "1",
            "commercialEnable": "true",
            "commercialTimerCount": "1",
            "commercialTransCount": "1",
        },
    ),
)
