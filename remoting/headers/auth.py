"""Headers of the requests about users and policies (codes 3001 to 3010).

Source: remoting/protocol/header/{CreateUser,GetUser,ListUsers,CreateAcl,DeleteAcl,GetAcl,ListAcls}RequestHeader.java,
Apache RocketMQ 5.5.
"""

from __future__ import annotations

from thermocline.remoting.header_codec import Header


class UserRequestHeader(Header, kw_only=True):
    """AUTH_CREATE_USER, AUTH_UPDATE_USER, AUTH_DELETE_USER, AUTH_GET_USER."""

    username: str | None = None


class ListUsersRequestHeader(Header, kw_only=True):
    """AUTH_LIST_USER. `filter`: a part of the name."""

    filter: str | None = None


class AclRequestHeader(Header, kw_only=True):
    """AUTH_CREATE_ACL, AUTH_UPDATE_ACL, AUTH_GET_ACL."""

    subject: str | None = None


class DeleteAclRequestHeader(Header, kw_only=True):
    """AUTH_DELETE_ACL. Without `resource` all policies go."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class ListAclsRequestHeader(Header, kw_only=True):
    """AUTH_LIST_ACL. Parts of subjects and of resources."""

    subject_filter: str | None = None
    resource_filter: str | None = None
