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
// (no answers), batch (of batch_size), ordered (queue chosen by the sharding key: index modulo shards), chosen (the queue
// of broker_name and queue_id).
func (all *producers) produce(wanted request) (any, error) {
	sender, err := all.find(wanted)
	if err != nil {
		return nil, err
	}
	end := wanted.Start + wanted.Count
	answers := []any{}
	switch wanted.Kind {
	case "sync", "ordered", "chosen":
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
	for each := 0; each < wanted.Count; each++ {
		place := each // one of its own for each callback
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
	made, err := newProducer(wanted)
	if err != nil {
		return nil, err
	}
	all.running[wanted.Name] = made
	return made, nil
}

// newProducer starts a producer: name, group, namesrv, kind, compress_over_bytes, trace.
func newProducer(wanted request) (rocketmq.Producer, error) {
	made, err := rocketmq.NewProducer(producerOptions(wanted)...)
	if err != nil {
		return nil, err
	}
	return made, made.Start()
}

func producerOptions(wanted request) []producer.Option {
	options := []producer.Option{
		producer.WithGroupName(wanted.Group),
		producer.WithInstanceName(wanted.instance()),
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{wanted.NameServer})),
		producer.WithSendMsgTimeout(sendTimeout),
		producer.WithRetry(2),
	}
	options = append(options, producerTls()...)
	if wanted.AccessKey != "" {
		options = append(options, producer.WithCredentials(wanted.credentials()))
	}
	switch wanted.Kind {
	case "ordered":
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	case "chosen":
		options = append(options, producer.WithQueueSelector(producer.NewManualQueueSelector()))
	}
	if wanted.CompressOverBytes > 0 {
		options = append(options, producer.WithCompressMsgBodyOverHowmuch(wanted.CompressOverBytes))
	}
	if wanted.Trace {
		options = append(options, producer.WithTrace(traceConfig(wanted)))
	}
	return options
}

// traceConfig has traces written to the usual topic. All traces of a process go to one NameServer: the client keeps the
// connection that the first one made.
func traceConfig(wanted request) *primitive.TraceConfig {
	return &primitive.TraceConfig{
		GroupName:   wanted.Group,
		Access:      primitive.Local,
		Resolver:    primitive.NewPassthroughResolver([]string{wanted.NameServer}),
		Credentials: wanted.credentials(),
	}
}

func (all *producers) stop(wanted request) (any, error) {
	known, ok := all.running[wanted.Name]
	if !ok {
		return nil, nil
	}
	delete(all.running, wanted.Name)
	return nil, known.Shutdown()
}
