package main

import (
	"context"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const pullCount = 32

// pullTopic reads count messages of a topic with the pull consumer, which goes round the queues by itself.
func pullTopic(wanted request) (any, error) {
	made, err := startPull(wanted)
	if err != nil {
		return nil, err
	}
	defer made.Shutdown()
	deadline := time.Now().Add(time.Duration(wanted.TimeoutMs) * time.Millisecond)
	messages := []any{}
	for len(messages) < wanted.Count && time.Now().Before(deadline) {
		polled, err := made.Poll(context.Background(), time.Second)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, message := range polled.GetMsgList() {
			messages = append(messages, shown(message))
		}
		made.ACK(context.Background(), polled, consumer.ConsumeSuccess)
	}
	return messages, nil
}

// pullQueue reads what a queue holds from an offset up to its end, as far as the expression means it. (Each pull says
// what it wants, so that a broken expression is an error here; a push consumer only logs it.)
func pullQueue(wanted request) (any, error) {
	made, err := startPull(wanted)
	if err != nil {
		return nil, err
	}
	defer made.Shutdown()
	queue := &primitive.MessageQueue{Topic: wanted.Topic, BrokerName: wanted.BrokerName, QueueId: wanted.QueueID}
	messages := []any{}
	for offset := wanted.Offset; ; {
		result, err := made.PullFrom(context.Background(), queue, offset, pullCount)
		if err != nil {
			return nil, err
		}
		if result.Status == primitive.PullFound {
			for _, message := range result.GetMessageExts() {
				messages = append(messages, shown(message))
			}
		}
		offset = result.NextBeginOffset
		if offset >= result.MaxOffset {
			return messages, nil
		}
	}
}

func startPull(wanted request) (rocketmq.PullConsumer, error) {
	options := append(
		consumerTls(),
		consumer.WithGroupName(wanted.Group),
		consumer.WithInstance(wanted.instance()),
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{wanted.NameServer})),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if wanted.AccessKey != "" {
		options = append(options, consumer.WithCredentials(wanted.credentials()))
	}
	made, err := rocketmq.NewPullConsumer(options...)
	if err != nil {
		return nil, err
	}
	chosen := consumer.MessageSelector(wanted.Expression)
	if chosen.Expression == "" {
		chosen = consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	}
	if err := made.Subscribe(wanted.Topic, chosen); err != nil {
		return nil, err
	}
	return made, made.Start()
}
