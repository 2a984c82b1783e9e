package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// The delay level of messages that come again, when nothing else is wanted: one second.
const retryDelayLevel = 1

type listener func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

// consumers run until they are stopped; each has its inbox.
type consumers struct {
	running map[string]*inbox
}

func newConsumers() *consumers {
	return &consumers{running: map[string]*inbox{}}
}

// startPush starts a push consumer: name, namesrv, group, topics, orderly, broadcast, from (and timestamp), strategy,
// max_reconsume_times, trace, pull_count and pull_interval_ms, what to refuse (see newInbox), retry_delay_level (0
// leaves it to the broker). Consumers of one instance share a connection; without a word each has its own.
func (all *consumers) startPush(wanted request) (any, error) {
	made, err := newPush(wanted)
	if err != nil {
		return nil, err
	}
	box := newInbox(wanted, made.Shutdown)
	delayLevel := retryDelayLevel
	if wanted.RetryDelayLevel != nil {
		delayLevel = *wanted.RetryDelayLevel
	}
	err = subscribeAndStart(made, wanted, func(
		ctx context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		if box.accept(messages) {
			return consumer.ConsumeSuccess, nil
		}
		if wanted.Orderly {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		if concurrent, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			concurrent.DelayLevelWhenNextConsume = delayLevel
		}
		return consumer.ConsumeRetryLater, nil
	})
	if err != nil {
		return nil, err
	}
	all.running[wanted.Name] = box
	return nil, nil
}

func newPush(wanted request) (rocketmq.PushConsumer, error) {
	options := []consumer.Option{
		consumer.WithGroupName(wanted.Group),
		consumer.WithInstance(wanted.instance()),
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{wanted.NameServer})),
		consumer.WithConsumerOrder(wanted.Orderly),
		consumer.WithConsumeFromWhere(beginnings[wanted.From]),
	}
	options = append(options, consumerTls()...)
	if wanted.AccessKey != "" {
		options = append(options, consumer.WithCredentials(wanted.credentials()))
	}
	if wanted.Timestamp != "" {
		options = append(options, consumer.WithConsumeTimestamp(wanted.Timestamp))
	}
	if wanted.Broadcast {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if wanted.Strategy != "" {
		options = append(options, consumer.WithStrategy(strategies[wanted.Strategy]))
	}
	if wanted.PullCount > 0 {
		interval := time.Duration(wanted.PullIntervalMs) * time.Millisecond
		options = append(options, consumer.WithPullBatchSize(wanted.PullCount), consumer.WithPullInterval(interval))
	}
	if wanted.TriesMax > 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(wanted.TriesMax))
	}
	if wanted.Trace {
		options = append(options, consumer.WithTrace(traceConfig(wanted)))
	}
	return rocketmq.NewPushConsumer(options...)
}

// Where a group begins that has no offsets; first, unless another is named.
var beginnings = map[string]consumer.ConsumeFromWhere{
	"":          consumer.ConsumeFromFirstOffset,
	"first":     consumer.ConsumeFromFirstOffset,
	"last":      consumer.ConsumeFromLastOffset,
	"timestamp": consumer.ConsumeFromTimestamp,
}

// How a group's members share queues. all: each wants every queue, so that only locks keep them apart.
var strategies = map[string]consumer.AllocateStrategy{
	"averagely": consumer.AllocateByAveragely,
	"circle":    consumer.AllocateByAveragelyCircle,
	"all": func(_, _ string, queues []*primitive.MessageQueue, _ []string) []*primitive.MessageQueue {
		return queues
	},
}

func subscribeAndStart(made rocketmq.PushConsumer, wanted request, listen listener) error {
	for topic, chosen := range wanted.Topics {
		if err := made.Subscribe(topic, consumer.MessageSelector(chosen), listen); err != nil {
			return err
		}
	}
	return made.Start()
}

// received hands over what name has received, once it is at least count messages or timeout_ms have passed.
func (all *consumers) received(wanted request) (any, error) {
	box, known := all.running[wanted.Name]
	if !known {
		return nil, fmt.Errorf("no consumer called %s", wanted.Name)
	}
	return box.take(wanted.Count, time.Duration(wanted.TimeoutMs)*time.Millisecond), nil
}

// stop ends a consumer, if it runs, and hands over what it has received.
func (all *consumers) stop(wanted request) (any, error) {
	box, known := all.running[wanted.Name]
	if !known {
		return []any{}, nil
	}
	delete(all.running, wanted.Name)
	if err := box.stop(); err != nil {
		return nil, err
	}
	return box.take(0, 0), nil
}
