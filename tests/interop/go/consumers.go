package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// The delay level of messages that come again: one second.
const retryDelayLevel = 1

// inbox holds what one consumer has received and not yet handed over.
type inbox struct {
	mutex       sync.Mutex
	changed     chan struct{}
	messages    []any
	refuseFirst int
	refuseAll   bool
	stop        func() error
}

// accept keeps messages; false when the consumer shall ask for them again.
func (box *inbox) accept(messages []*primitive.MessageExt) bool {
	box.mutex.Lock()
	defer box.mutex.Unlock()
	for _, message := range messages {
		if message.ReconsumeTimes == 0 && box.refuseFirst > 0 {
			box.refuseFirst--
			return false
		}
	}
	for _, message := range messages {
		box.messages = append(box.messages, shown(message))
	}
	close(box.changed)
	box.changed = make(chan struct{})
	return !box.refuseAll
}

// take hands over all messages once there are enough of them, or the time is up.
func (box *inbox) take(countMin int, timeout time.Duration) []any {
	deadline := time.After(timeout)
	for {
		box.mutex.Lock()
		changed := box.changed
		if len(box.messages) >= countMin {
			break
		}
		box.mutex.Unlock()
		select {
		case <-changed:
			continue
		case <-deadline:
			box.mutex.Lock()
		}
		break
	}
	defer box.mutex.Unlock()
	taken := box.messages
	box.messages = []any{}
	return taken
}

type consumers struct {
	running map[string]*inbox
}

func newConsumers() *consumers {
	return &consumers{running: map[string]*inbox{}}
}

// startPush starts a push consumer: name, namesrv, group, topics, orderly, broadcast, from, refuse_first, refuse_all,
// max_reconsume_times.
func (all *consumers) startPush(wanted request) (any, error) {
	options := []consumer.Option{
		consumer.WithGroupName(wanted.Group),
		consumer.WithInstance(wanted.Name),
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{wanted.NameServer})),
		consumer.WithConsumerOrder(wanted.Orderly),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
	if wanted.From == "last" {
		options = append(options, consumer.WithConsumeFromWhere(consumer.ConsumeFromLastOffset))
	}
	if wanted.Broadcast {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if wanted.TriesMax > 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(wanted.TriesMax))
	}
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	box := &inbox{
		changed:     make(chan struct{}),
		messages:    []any{},
		refuseFirst: wanted.RefuseFirst,
		refuseAll:   wanted.RefuseAll,
		stop:        made.Shutdown,
	}
	listener := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		if box.accept(messages) {
			return consumer.ConsumeSuccess, nil
		}
		if wanted.Orderly {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		if concurrent, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			concurrent.DelayLevelWhenNextConsume = retryDelayLevel
		}
		return consumer.ConsumeRetryLater, nil
	}
	for topic, expression := range wanted.Topics {
		selector := consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
		if err := made.Subscribe(topic, selector, listener); err != nil {
			return nil, err
		}
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	all.running[wanted.Name] = box
	return nil, nil
}

// received hands over what name has received, once it is at least count messages or timeout_ms have passed.
func (all *consumers) received(wanted request) (any, error) {
	box, known := all.running[wanted.Name]
	if !known {
		return nil, fmt.Errorf("no consumer called %s", wanted.Name)
	}
	return box.take(wanted.Count, time.Duration(wanted.TimeoutMs)*time.Millisecond), nil
}

func (all *consumers) stop(wanted request) (any, error) {
	box, known := all.running[wanted.Name]
	if !known {
		return nil, nil
	}
	delete(all.running, wanted.Name)
	return nil, box.stop()
}

// pullTopic reads count messages of a topic with the pull consumer, which goes round the queues by itself.
func pullTopic(wanted request) (any, error) {
	made, err := rocketmq.NewPullConsumer(
		consumer.WithGroupName(wanted.Group),
		consumer.WithInstance(wanted.Name),
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{wanted.NameServer})),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	if err := made.Subscribe(wanted.Topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}); err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
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
