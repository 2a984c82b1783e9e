"""Wire questions: a question as a request to a controller, and the controller's answer taken apart.

Source: broker/out/BrokerOuterAPI.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from thermocline.broker.controlled.identity_files import BrokerNames
from thermocline.broker.controlled.questions import Answer, Ask, MasterNews, Members, Question
from thermocline.remoting.bodies.replica import ElectMasterResponseBody, SyncStateSet
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode


def encode_question(question: Question, names: BrokerNames, *, address: str) -> RemotingCommand:
    """The request. `address`: where this broker serves."""
    cluster, broker_name = names.cluster, names.broker_name
    match question.ask:
        case Ask.NEXT_ID:
            return RemotingCommand.request(
                RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
                GetNextBrokerIdRequestHeader(cluster_name=cluster, broker_name=broker_name),
            )
        case Ask.APPLY:
            return RemotingCommand.request(
                RequestCode.CONTROLLER_APPLY_BROKER_ID,
                ApplyBrokerIdRequestHeader(
                    cluster_name=cluster,
                    broker_name=broker_name,
                    applied_broker_id=question.broker_id,
                    register_check_code=question.check_code,
                ),
            )
        case Ask.REGISTER:
            return RemotingCommand.request(
                RequestCode.CONTROLLER_REGISTER_BROKER,
                RegisterBrokerToControllerRequestHeader(
                    cluster_name=cluster, broker_name=broker_name, broker_id=question.broker_id, broker_address=address
                ),
            )
        case Ask.ELECT:
            return RemotingCommand.request(
                RequestCode.CONTROLLER_ELECT_MASTER,
                ElectMasterRequestHeader(cluster_name=cluster, broker_name=broker_name, broker_id=question.broker_id),
            )
        case Ask.REPLICA_INFO:
            return RemotingCommand.request(
                RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequestHeader(broker_name=broker_name)
            )
        case Ask.ALTER:
            return RemotingCommand.request(
                RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
                AlterSyncStateSetRequestHeader(
                    broker_name=broker_name, master_broker_id=question.broker_id, master_epoch=question.master_epoch
                ),
                body=SyncStateSet(
                    sync_state_set=sorted(question.members), sync_state_set_epoch=question.set_epoch
                ).encode(),
            )


def decode_answer(question: Question, command: RemotingCommand) -> Answer:
    """What a controller has answered.

    Raises:
        InvalidRequestError: A header or body is none.
    """
    code, remark = command.code, command.remark or ""
    has_master = code == ResponseCode.SUCCESS or (
        question.ask is Ask.ELECT and code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    )
    if not has_master or question.ask is Ask.APPLY:
        return Answer(code=code, remark=remark)
    if question.ask is Ask.NEXT_ID:
        return Answer(next_id=command.header(GetNextBrokerIdResponseHeader).next_broker_id or 0)
    return Answer(code=code, remark=remark, news=_decode_news(question, command))


def _decode_news(question: Question, command: RemotingCommand) -> MasterNews:
    match question.ask:
        case Ask.ELECT:
            elected = command.header(ElectMasterResponseHeader)
            body = ElectMasterResponseBody.decode(command.body) if command.body else ElectMasterResponseBody()
            return _news(elected, elected.sync_state_set_epoch, frozenset(body.sync_state_set))
        case Ask.REGISTER:
            registered = command.header(RegisterBrokerToControllerResponseHeader)
            answered = _decode_set(command)
            return _news(registered, registered.sync_state_set_epoch, frozenset(answered.sync_state_set))
        case Ask.ALTER:
            epoch = command.header(AlterSyncStateSetResponseHeader).new_sync_state_set_epoch
            answered = _decode_set(command)
            return MasterNews(
                master_id=question.broker_id,
                master_address="",
                master_epoch=question.master_epoch,
                set_epoch=answered.sync_state_set_epoch or epoch,
                members=frozenset(answered.sync_state_set) or question.members,
            )
        case _:
            info = command.header(GetReplicaInfoResponseHeader)
            answered = _decode_set(command)
            return _news(info, answered.sync_state_set_epoch, frozenset(answered.sync_state_set))


def _decode_set(command: RemotingCommand) -> SyncStateSet:
    return SyncStateSet.decode(command.body) if command.body else SyncStateSet()


def _news(
    header: ElectMasterResponseHeader | GetReplicaInfoResponseHeader, set_epoch: int | None, members: Members
) -> MasterNews:
    address = header.master_address or ""
    return MasterNews(
        master_id=header.master_broker_id if address else None,
        master_address=address,
        master_epoch=header.master_epoch or 0,
        set_epoch=set_epoch or 0,
        members=members,
    )
