package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const sendTimeout = 10 * time.Second

// producers are made at their first send and kept until they are stopped.
type producers struct {
	running map[string]rocketmq.Producer
}

func newProducers() *producers {
	return &producers{running: map[string]rocketmq.Producer{}}
}

// produce sends messages start to start + count and returns one answer a request, in order. kind: sync, async, oneway
// (no answers), batch (of batch_size), ordered (queue chosen by the sharding key: index modulo shards).
func (all *producers) produce(wanted request) (any, error) {
	sender, err := all.find(wanted)
	if err != nil {
		return nil, err
	}
	end := wanted.Start + wanted.Count
	answers := []any{}
	switch wanted.Kind {
	case "sync", "ordered":
		for index := wanted.Start; index < end; index++ {
			result, err := sender.SendSync(context.Background(), build(wanted, index))
			if err != nil {
				return nil, err
			}
			answers = append(answers, sent(result))
		}
	case "oneway":
		for index := wanted.Start; index < end; index++ {
			if err := sender.SendOneWay(context.Background(), build(wanted, index)); err != nil {
				return nil, err
			}
		}
	case "batch":
		for index := wanted.Start; index < end; index += wanted.BatchSize {
			var batch []*primitive.Message
			for each := index; each < min(index+wanted.BatchSize, end); each++ {
				batch = append(batch, build(wanted, each))
			}
			result, err := sender.SendSync(context.Background(), batch...)
			if err != nil {
				return nil, err
			}
			answers = append(answers, sent(result))
		}
	case "async":
		return sendAsync(sender, wanted)
	default:
		return nil, fmt.Errorf("kind %s", wanted.Kind)
	}
	return answers, nil
}

func sendAsync(sender rocketmq.Producer, wanted request) (any, error) {
	answers := make([]any, wanted.Count)
	failures := make([]error, wanted.Count)
	var open sync.WaitGroup
	for place := 0; place < wanted.Count; place++ {
		open.Add(1)
		err := sender.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
			defer open.Done()
			failures[place] = err
			if err == nil {
				answers[place] = sent(result)
			}
		}, build(wanted, wanted.Start+place))
		if err != nil {
			return nil, err
		}
	}
	open.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

func sent(result *primitive.SendResult) map[string]any {
	return map[string]any{
		"status":            statusNames[result.Status],
		"message_id":        result.MsgID,
		"offset_message_id": result.OffsetMsgID,
		"broker_name":       result.MessageQueue.BrokerName,
		"queue_id":          result.MessageQueue.QueueId,
		"queue_offset":      result.QueueOffset,
		"region":            result.RegionID,
	}
}

var statusNames = map[primitive.SendStatus]string{
	primitive.SendOK:                "SEND_OK",
	primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
	primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
}

func (all *producers) find(wanted request) (rocketmq.Producer, error) {
	if known, ok := all.running[wanted.Name]; ok {
		return known, nil
	}
	options := []producer.Option{
		producer.WithGroupName(wanted.Group),
		producer.WithInstanceName(wanted.Name),
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{wanted.NameServer})),
		producer.WithSendMsgTimeout(sendTimeout),
		producer.WithRetry(2),
	}
	if wanted.Kind == "ordered" {
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	}
	made, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	all.running[wanted.Name] = made
	return made, nil
}

func (all *producers) stop(wanted request) (any, error) {
	known, ok := all.running[wanted.Name]
	if !ok {
		return nil, nil
	}
	delete(all.running, wanted.Name)
	return nil, known.Shutdown()
}
