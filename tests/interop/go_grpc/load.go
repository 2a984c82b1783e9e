package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

// load sends a message every COUNT milliseconds and consumes all that is in the topic, until its input ends; a line of
// input ends the sending. It prints "ready", "sent MILLISECONDS BODY" when a message is acknowledged, "got MILLISECONDS
// BODY" when one is received, and "stopped" behind the last that it sent.
func load() error {
	topic := prefix + "NORMAL"
	group = group + "-go"
	var lock sync.Mutex
	note := func(what, body string) {
		lock.Lock()
		defer lock.Unlock()
		fmt.Println(what, time.Now().UnixMilli(), body)
	}
	consumer, err := newPushConsumer(topic, func(message *rmq.MessageView) rmq.ConsumerResult {
		note("got", string(message.GetBody()))
		return rmq.SUCCESS
	})
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	producer, err := newProducer(topic)
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	note("ready", "")
	var isStopped atomic.Bool
	ended := make(chan bool)
	go func() {
		for number := 0; !isStopped.Load(); number++ {
			body := fmt.Sprintf("go-%d", number)
			message := &rmq.Message{Topic: topic, Body: []byte(body)}
			if _, err := producer.Send(context.Background(), message); err == nil {
				note("sent", body)
			}
			time.Sleep(time.Duration(count) * time.Millisecond)
		}
		note("stopped", "")
		close(ended)
	}()
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		isStopped.Store(true)
	}
	isStopped.Store(true)
	<-ended
	return nil
}
