"""Access control of a proxy, for every protocol: users and policies as brokers have them, decisions by
them, and quotas."""

from thermocline.proxy.access.access_check import AccessCheck, AccessRules, Permit
from thermocline.proxy.access.account import Account, UserSource
from thermocline.proxy.access.cluster_users import ClusterUsers
from thermocline.proxy.access.proof import Proof, RequestName
from thermocline.proxy.access.quota_check import QuotaCheck
from thermocline.proxy.access.user_directory import UserDirectory

__all__ = [
    "AccessCheck",
    "AccessRules",
    "Account",
    "ClusterUsers",
    "Permit",
    "Proof",
    "QuotaCheck",
    "RequestName",
    "UserDirectory",
    "UserSource",
]
