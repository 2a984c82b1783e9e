package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const (
	pauseAfterFailure = 100 * time.Millisecond
	// How long the last asynchronous sends may take.
	finishTimeout = 30 * time.Second
)

// loadRequest holds what only the operations of this file read.
type loadRequest struct {
	// Requests a second.
	Rate    float64 `json:"rate"`
	Journal string  `json:"journal"`
}

// load is producers that send by themselves, numbered messages at a rate, and consumers that are not asked what they
// have received; all of them keep journals.
type load struct {
	producers *producers
	consumers []rocketmq.PushConsumer
	senders   map[string]*loadSender
}

func newLoad(producers *producers) *load {
	// After telling the callback that an asynchronous send has failed, the client goes on to read the answer that there
	// is not, which would end this process: the client lets its user handle that.
	setPanicHandler(func(problem any) {
		fmt.Fprintln(os.Stderr, "panic in the client:", problem)
	})
	return &load{producers: producers, senders: map[string]*loadSender{}}
}

func (all *load) operations() map[string]operation {
	return map[string]operation{
		"start_load":          all.start,
		"finish_load":         all.finish,
		"start_load_consumer": all.startConsumer,
	}
}

type loadSender struct {
	wanted     request
	producer   rocketmq.Producer
	journal    *journal
	finished   chan struct{}
	ended      chan struct{}
	unanswered sync.WaitGroup
	begun      int
}

// start begins to send: kind sync, async, batch or ordered as in produce, at rate requests a second.
func (all *load) start(wanted request) (any, error) {
	sender, err := all.producers.find(wanted)
	if err != nil {
		return nil, err
	}
	events, err := openJournal(wanted.Journal)
	if err != nil {
		return nil, err
	}
	begun := &loadSender{
		wanted:   wanted,
		producer: sender,
		journal:  events,
		finished: make(chan struct{}),
		ended:    make(chan struct{}),
	}
	all.senders[wanted.Name] = begun
	go begun.run()
	return nil, nil
}

// finish has name send no more; how many messages it has begun to send.
func (all *load) finish(wanted request) (any, error) {
	sender := all.senders[wanted.Name]
	close(sender.finished)
	<-sender.ended
	answered := make(chan struct{})
	go func() {
		sender.unanswered.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(finishTimeout):
	}
	return sender.begun, nil
}

func (sender *loadSender) run() {
	defer close(sender.ended)
	interval := time.Duration(float64(time.Second) / sender.wanted.Rate)
	next := time.Now()
	for {
		pause := time.Duration(0)
		if !sender.send() {
			pause = pauseAfterFailure
		}
		// What a failure or a pause has cost is not made up for.
		next = next.Add(interval)
		if now := time.Now(); next.Before(now) {
			next = now
		}
		select {
		case <-sender.finished:
			return
		case <-time.After(time.Until(next) + pause):
		}
	}
}

// send makes one request; false when it failed.
func (sender *loadSender) send() bool {
	sentMs := nowMs()
	first := sender.begun
	count := max(1, sender.wanted.BatchSize)
	var messages []*primitive.Message
	for ; sender.begun < first+count; sender.begun++ {
		message := build(sender.wanted, sender.begun)
		message.WithProperty("weight", strconv.Itoa(sender.begun%10))
		messages = append(messages, message)
	}
	if sender.wanted.Kind == "async" {
		return sender.sendAsync(first, sentMs, messages[0])
	}
	result, err := sender.producer.SendSync(context.Background(), messages...)
	for number := first; number < sender.begun; number++ {
		sender.journal.sent(number, sentMs, outcome(result, err))
	}
	return err == nil
}

func (sender *loadSender) sendAsync(number int, sentMs int64, message *primitive.Message) bool {
	sender.unanswered.Add(1)
	var once sync.Once
	end := func(_ context.Context, result *primitive.SendResult, err error) {
		once.Do(func() {
			sender.journal.sent(number, sentMs, outcome(result, err))
			sender.unanswered.Done()
		})
	}
	err := sender.producer.SendAsync(context.Background(), end, message)
	if err != nil {
		end(context.Background(), nil, err)
	}
	return err == nil
}

func outcome(result *primitive.SendResult, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	return statusNames[result.Status]
}

// startConsumer starts a push consumer as startPush does; it takes all that it receives, and notes it in its journal.
func (all *load) startConsumer(wanted request) (any, error) {
	events, err := openJournal(wanted.Journal)
	if err != nil {
		return nil, err
	}
	made, err := newPush(wanted)
	if err != nil {
		return nil, err
	}
	all.consumers = append(all.consumers, made)
	return nil, subscribeAndStart(made, wanted, func(
		_ context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			events.received(message)
		}
		return consumer.ConsumeSuccess, nil
	})
}
