"""Access control of a proxy, for every protocol: users and policies as brokers have them, and decisions by them."""

from thermocline.proxy.access.access_check import AccessCheck, AccessRules, Permit
from thermocline.proxy.access.account import Account, UserSource
from thermocline.proxy.access.cluster_users import ClusterUsers
from thermocline.proxy.access.proof import Proof, RequestName
from thermocline.proxy.access.user_directory import UserDirectory

__all__ = [
    "AccessCheck",
    "AccessRules",
    "Account",
    "ClusterUsers",
    "Permit",
    "Proof",
    "RequestName",
    "UserDirectory",
    "UserSource",
]
