"""Plain ACL: RocketMQ's older access control (release 4), a file of accounts that become users and policies.

    globalWhiteRemoteAddresses:          passed over: a policy's entry names its addresses itself
      - 10.10.103.*
    accounts:
      - accessKey: RocketMQ
        secretKey: 12345678
        whiteRemoteAddress:              passed over, as RocketMQ does it
        admin: false                     true: a super user
        defaultTopicPerm: DENY           entry Topic:* of the policy DEFAULT
        defaultGroupPerm: SUB            entry Group:* of it
        topicPerms:                      entries of the policy CUSTOM
          - topicA=DENY
          - topicB=PUB|SUB
        groupPerms:
          - groupA=SUB

PUB, SUB, PUB|SUB, SUB|PUB allow that, DENY denies everything; RocketMQ allows everything for any other word, here such
a word is refused. Of YAML what such a file uses is read: keys with a text, lists, comments, quotes; the rest is refused
with its line.
Source: auth/migration/AuthMigrator.java, auth/migration/v1/PlainPermissionManager.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from thermocline.auth.actions import Action
from thermocline.auth.policies import Decision, Policy, PolicyEntry, PolicyType
from thermocline.auth.resources import Resource, ResourcePattern, ResourceType, group_resource, topic_resource
from thermocline.remoting.errors import SettingError

PERMISSIONS: dict[str, tuple[Action, ...]] = {
    "PUB": (Action.PUB,),
    "SUB": (Action.SUB,),
    "PUB|SUB": (Action.PUB, Action.SUB),
    "SUB|PUB": (Action.PUB, Action.SUB),
    "DENY": (Action.ALL,),
}
ACCOUNTS, WHITE_LIST = "accounts", "globalWhiteRemoteAddresses"
TEXTS = ("accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm")
LISTS = ("topicPerms", "groupPerms", "resourcePerms")


@dataclass(slots=True)
class Account:
    """One account of a file."""

    texts: dict[str, str] = field(default_factory=dict, repr=False)
    lists: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_admin(self) -> bool:
        """Whether it becomes a super user."""
        return self.texts.get("admin", "").lower() == "true"

    def policies(self) -> tuple[Policy, ...]:
        """Its policies.

        Raises:
            SettingError: A permission is none.
        """
        custom = [
            *(_entry(topic_resource(name), perm) for name, perm in _pairs(self.lists.get("topicPerms", []))),
            *(_entry(group_resource(name), perm) for name, perm in _pairs(self.lists.get("groupPerms", []))),
        ]
        default = [
            _entry(Resource(kind, None, ResourcePattern.ANY), self.texts[name])
            for kind, name in ((ResourceType.TOPIC, "defaultTopicPerm"), (ResourceType.GROUP, "defaultGroupPerm"))
            if self.texts.get(name)
        ]
        kinds = ((PolicyType.CUSTOM, custom), (PolicyType.DEFAULT, default))
        return tuple(Policy(type=kind, entries=tuple(entries)) for kind, entries in kinds if entries)


def read_accounts(text: str, path: str) -> list[Account]:
    """The accounts in a file.

    Raises:
        SettingError: It is no such file; the error names the line, and shows nothing of it.
    """
    accounts: list[Account] = []
    section = open_list = ""
    for number, indent, is_item, name, value in _lines(text, path):
        if indent == 0 and not is_item:
            if name not in (ACCOUNTS, WHITE_LIST) or value:
                raise _unread(path, number)
            section, open_list = name, ""
            continue
        if section == WHITE_LIST and is_item:
            continue
        if section != ACCOUNTS:
            raise _unread(path, number)
        if is_item and name in TEXTS:
            accounts.append(Account())
        if not accounts:
            raise _unread(path, number)
        account = accounts[-1]
        if is_item and open_list and name not in TEXTS:
            account.lists[open_list].append(value)
        elif name in TEXTS:
            account.texts[name], open_list = value, ""
        elif name in LISTS and not value:
            account.lists[name], open_list = [], name
        else:
            raise _unread(path, number)
    for account in accounts:
        if not account.texts.get("accessKey") or not account.texts.get("secretKey"):
            raise SettingError("an account without accessKey or secretKey", source=path)
    return accounts


def _lines(text: str, path: str) -> Iterator[tuple[int, int, bool, str, str]]:
    """Line number, indentation, whether an item of a list begins, key and text; an item without a key is a text."""
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.partition(" #")[0].rstrip() if not line.lstrip().startswith("#") else ""
        if not content.strip() or content.strip() == "---":
            continue
        if "\t" in content[: len(content) - len(content.lstrip())]:
            raise _unread(path, number)
        indent, rest = len(content) - len(content.lstrip(" ")), content.strip()
        is_item = rest == "-" or rest.startswith("- ")
        rest = rest[1:].strip() if is_item else rest
        key, colon, value = rest.partition(":")
        if colon and (not value or value[0] == " ") and key.strip() in (*TEXTS, *LISTS, ACCOUNTS, WHITE_LIST):
            yield number, indent, is_item, key.strip(), _unquoted(value.strip(), path, number)
        elif is_item:
            yield number, indent, True, "", _unquoted(rest, path, number)
        else:
            raise _unread(path, number)


def _unquoted(value: str, path: str, number: int) -> str:
    if value[:1] in ("'", '"'):
        if len(value) < 2 or value[-1] != value[0] or "\\" in value:
            raise _unread(path, number)
        return value[1:-1]
    if value[:1] in ("&", "*", "[", "{", "|", ">", "!"):
        raise _unread(path, number)
    return value


def _unread(path: str, number: int) -> SettingError:
    return SettingError("this line of an older file of access control cannot be read", source=f"{path}:{number}")


def _pairs(texts: list[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, separator, permission = text.partition("=")
        if not separator or not name.strip():
            raise SettingError("a permission is name=PERMISSION", value=text)
        yield name.strip(), permission.strip()


def _entry(resource: Resource, permission: str) -> PolicyEntry:
    actions = PERMISSIONS.get(permission)
    if actions is None:
        raise SettingError(f"a permission is one of {', '.join(PERMISSIONS)}", value=permission)
    decision = Decision.DENY if permission == "DENY" else Decision.ALLOW
    return PolicyEntry(resource=resource, actions=actions, decision=decision)
