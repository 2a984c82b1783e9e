package main

import (
	"context"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// A broker knows a Go producer once its first heartbeat is through, a second after its start; no reply gets to it
// before.
const (
	replyTries    = 50
	replyInterval = 100 * time.Millisecond
)

// request sends messages start to start + count, one after another, and returns the texts of their replies.
func (all *producers) request(wanted request) (any, error) {
	sender, err := all.find(wanted)
	if err != nil {
		return nil, err
	}
	timeout := time.Duration(wanted.TimeoutMs) * time.Millisecond
	replies := []any{}
	for index := wanted.Start; index < wanted.Start+wanted.Count; index++ {
		reply, err := sender.Request(context.Background(), timeout, build(wanted, index))
		if err != nil {
			return nil, err
		}
		replies = append(replies, string(reply.Body))
	}
	return replies, nil
}

// startReplier starts a push consumer that answers each message with "reply to " and its body.
func (all *consumers) startReplier(wanted request) (any, error) {
	sender, err := newProducer(request{
		Name: wanted.Name + "-replier", Group: wanted.Group + "-replier", NameServer: wanted.NameServer,
		AccessKey: wanted.AccessKey, SecretKey: wanted.SecretKey, SecurityToken: wanted.SecurityToken,
	})
	if err != nil {
		return nil, err
	}
	made, err := newPush(wanted)
	if err != nil {
		return nil, err
	}
	all.running[wanted.Name] = newInbox(wanted, func() error {
		if err := made.Shutdown(); err != nil {
			return err
		}
		return sender.Shutdown()
	})
	return nil, subscribeAndStart(made, wanted, func(
		_ context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			body := []byte("reply to " + string(message.Body))
			reply, err := consumer.CreateReplyMessage(message, body)
			if err != nil {
				return consumer.ConsumeRetryLater, err
			}
			reply.Body = body // which the client forgets
			for try := 0; try < replyTries; try++ {
				if _, err = sender.SendSync(context.Background(), reply); err == nil {
					break
				}
				time.Sleep(replyInterval)
			}
			if err != nil {
				return consumer.ConsumeRetryLater, err
			}
		}
		return consumer.ConsumeSuccess, nil
	})
}
