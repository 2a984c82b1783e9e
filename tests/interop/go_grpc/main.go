// Drives RocketMQ's official Go client for gRPC through one scenario: HOST:PORT PREFIX SCENARIO COUNT tls|plain.
//
// Topics are PREFIX with the type of their messages behind it, the group is PREFIX-SCENARIO. Prints "OK" when all
// messages came as they must, else "FAIL" and why, with exit status 1. It knows nothing of Thermocline.
//
// The scenario load is in load.go.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const timeout = 60 * time.Second

var (
	endpoint, prefix, group string
	count                   int
)

func main() {
	endpoint, prefix = os.Args[1], os.Args[2]
	group = prefix + "-" + os.Args[3]
	count, _ = strconv.Atoi(os.Args[4])
	rmq.EnableSsl = os.Args[5] == "tls"
	scenarios := map[string]func() error{
		"simple": simple, "push": push, "retry": retry, "fifo": fifo, "delay": delay,
		"transaction": transaction, "check": check, "load": load,
	}
	if err := scenarios[os.Args[3]](); err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
	fmt.Println("OK")
}

// received is what a push consumer was given, in order.
type received struct {
	lock     sync.Mutex
	messages []*rmq.MessageView
}

func (r *received) add(message *rmq.MessageView) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.messages = append(r.messages, message)
}

func (r *received) bodies() []string {
	r.lock.Lock()
	defer r.lock.Unlock()
	bodies := make([]string, 0, len(r.messages))
	for _, message := range r.messages {
		bodies = append(bodies, string(message.GetBody()))
	}
	return bodies
}

func config() *rmq.Config {
	keys := &credentials.SessionCredentials{
		AccessKey:    os.Getenv("INTEROP_ACCESS_KEY"),
		AccessSecret: os.Getenv("INTEROP_SECRET_KEY"),
	}
	return &rmq.Config{Endpoint: endpoint, ConsumerGroup: group, Credentials: keys}
}

func newProducer(topic string, options ...rmq.ProducerOption) (rmq.Producer, error) {
	producer, err := rmq.NewProducer(config(), append(options, rmq.WithTopics(topic))...)
	if err != nil {
		return nil, err
	}
	return producer, producer.Start()
}

func newPushConsumer(topic string, listen func(*rmq.MessageView) rmq.ConsumerResult) (rmq.PushConsumer, error) {
	consumer, err := rmq.NewPushConsumer(config(),
		rmq.WithPushAwaitDuration(time.Second),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: listen}))
	if err != nil {
		return nil, err
	}
	return consumer, consumer.Start()
}

func await(what string, condition func() bool) error {
	for deadline := time.Now().Add(timeout); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("not in time: %s", what)
		}
	}
	return nil
}

// sendAll sends the bodies one after another; their message ids.
func sendAll(topic string, bodies []string, prepare func(*rmq.Message)) ([]*rmq.SendReceipt, error) {
	producer, err := newProducer(topic)
	if err != nil {
		return nil, err
	}
	defer producer.GracefulStop()
	receipts := []*rmq.SendReceipt{}
	for _, body := range bodies {
		message := &rmq.Message{Topic: topic, Body: []byte(body)}
		prepare(message)
		answer, err := producer.Send(context.Background(), message)
		if err != nil {
			return nil, err
		}
		receipts = append(receipts, answer...)
	}
	return receipts, nil
}

// numbered gives bodies that belong to this scenario.
func numbered(name string) []string {
	bodies := []string{}
	for i := 0; i < count; i++ {
		bodies = append(bodies, fmt.Sprintf("%s-%d", name, i))
	}
	return bodies
}

// own gives the bodies of this scenario: other scenarios send to the same topic.
func own(name string, bodies []string) []string {
	found := []string{}
	for _, body := range bodies {
		if strings.HasPrefix(body, name+"-") {
			found = append(found, body)
		}
	}
	return found
}

func simple() error {
	topic := prefix + "NORMAL"
	receipts, err := sendAll(topic, numbered("тело"), func(message *rmq.Message) {
		message.SetTag("tag")
		message.SetKeys("ключ", "key")
		message.AddProperty("имя", "значение")
	})
	if err != nil {
		return err
	}
	consumer, err := rmq.NewSimpleConsumer(config(),
		rmq.WithSimpleAwaitDuration(6*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: rmq.NewFilterExpression("tag")}))
	if err != nil {
		return err
	}
	if err := consumer.Start(); err != nil {
		return err
	}
	defer consumer.GracefulStop()
	ids := map[string]bool{}
	for deadline := time.Now().Add(timeout); len(ids) < count; {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d messages", len(ids), count)
		}
		messages, err := consumer.Receive(context.Background(), 16, 30*time.Second)
		if err != nil && !strings.Contains(err.Error(), "MESSAGE_NOT_FOUND") { // what this client says of an empty poll
			return err
		}
		for _, message := range messages {
			if ids[message.GetMessageId()] {
				return fmt.Errorf("twice: %s", message.GetMessageId())
			}
			if message.GetProperties()["имя"] != "значение" || len(message.GetKeys()) != 2 {
				return fmt.Errorf("properties %v, keys %v", message.GetProperties(), message.GetKeys())
			}
			if len(ids) == 0 {
				if err := consumer.ChangeInvisibleDuration(message, 60*time.Second); err != nil {
					return err
				}
			}
			ids[message.GetMessageId()] = true
			if err := consumer.Ack(context.Background(), message); err != nil {
				return err
			}
		}
	}
	for _, receipt := range receipts {
		if !ids[receipt.MessageID] {
			return fmt.Errorf("not received: %s", receipt.MessageID)
		}
	}
	return nil
}

func push() error {
	topic, inbox := prefix+"NORMAL", &received{}
	consumer, err := newPushConsumer(topic, func(message *rmq.MessageView) rmq.ConsumerResult {
		inbox.add(message)
		return rmq.SUCCESS
	})
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	if _, err := sendAll(topic, numbered("push"), func(*rmq.Message) {}); err != nil {
		return err
	}
	if err := await("the messages", func() bool { return len(own("push", inbox.bodies())) >= count }); err != nil {
		return err
	}
	different := map[string]bool{}
	for _, body := range own("push", inbox.bodies()) {
		different[body] = true
	}
	if len(different) != count || len(own("push", inbox.bodies())) != count {
		return fmt.Errorf("a message came twice: %v", inbox.bodies())
	}
	return nil
}

func retry() error {
	topic, inbox := prefix+"NORMAL", &received{}
	consumer, err := newPushConsumer(topic, func(message *rmq.MessageView) rmq.ConsumerResult {
		if string(message.GetBody()) != "retry" {
			return rmq.SUCCESS
		}
		inbox.add(message)
		if message.GetDeliveryAttempt() < 3 {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	})
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	if _, err := sendAll(topic, []string{"retry"}, func(*rmq.Message) {}); err != nil {
		return err
	}
	if err := await("three attempts", func() bool { return len(inbox.bodies()) >= 3 }); err != nil {
		return err
	}
	for i, message := range inbox.messages {
		if message.GetDeliveryAttempt() != int32(i+1) {
			return fmt.Errorf("attempt %d came as number %d", message.GetDeliveryAttempt(), i+1)
		}
	}
	return nil
}

// fifo lets one message of each group fail. This client goes on with the messages that it got by the same receive, so
// what failed may come behind them; everything else keeps its order, and nothing is missing.
func fifo() error {
	topic, inbox, failed := prefix+"FIFO", &received{}, sync.Map{}
	for _, name := range []string{"a", "b", "c"} {
		if _, err := sendAll(topic, numbered(name), func(message *rmq.Message) { message.SetMessageGroup(name) }); err != nil {
			return err
		}
	}
	consumer, err := newPushConsumer(topic, func(message *rmq.MessageView) rmq.ConsumerResult {
		if strings.HasSuffix(string(message.GetBody()), "-2") {
			if _, again := failed.LoadOrStore(string(message.GetBody()), true); !again {
				return rmq.FAILURE
			}
		}
		inbox.add(message)
		return rmq.SUCCESS
	})
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	if err := await("ordered messages", func() bool { return len(inbox.bodies()) >= 3*count }); err != nil {
		return err
	}
	for _, name := range []string{"a", "b", "c"} {
		ordered := []string{}
		isRetried := false
		for _, body := range own(name, inbox.bodies()) {
			if strings.HasSuffix(body, "-2") {
				isRetried = true
			} else {
				ordered = append(ordered, body)
			}
		}
		expected := numbered(name)
		expected = append(expected[:2], expected[3:]...)
		if !isRetried || strings.Join(ordered, " ") != strings.Join(expected, " ") {
			return fmt.Errorf("out of order: %v", inbox.bodies())
		}
	}
	return nil
}

func delay() error {
	topic, times := prefix+"DELAY", make(chan time.Time, 100)
	consumer, err := newPushConsumer(topic, func(*rmq.MessageView) rmq.ConsumerResult {
		times <- time.Now()
		return rmq.SUCCESS
	})
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	due := time.Now().Add(3 * time.Second)
	receipts, err := sendAll(topic, []string{"later"}, func(message *rmq.Message) { message.SetDelayTimestamp(due) })
	if err != nil {
		return err
	}
	if receipts[0].RecallHandle == "" {
		return fmt.Errorf("no recall handle")
	}
	select {
	case received := <-times:
		if received.Before(due.Truncate(time.Millisecond)) {
			return fmt.Errorf("early by %v", due.Sub(received))
		}
		return nil
	case <-time.After(timeout):
		return fmt.Errorf("not in time: the delayed message")
	}
}

func transaction() error {
	topic, inbox := prefix+"TRANSACTION", &received{}
	consumer, err := newPushConsumer(topic, func(message *rmq.MessageView) rmq.ConsumerResult {
		inbox.add(message)
		return rmq.SUCCESS
	})
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	unknown := &rmq.TransactionChecker{Check: func(*rmq.MessageView) rmq.TransactionResolution { return rmq.UNKNOWN }}
	producer, err := newProducer(topic, rmq.WithTransactionChecker(unknown))
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	for i, body := range numbered("tx") {
		transaction := producer.BeginTransaction()
		message := &rmq.Message{Topic: topic, Body: []byte(body)}
		if _, err := producer.SendWithTransaction(context.Background(), message, transaction); err != nil {
			return err
		}
		end := transaction.Commit
		if i%2 == 1 {
			end = transaction.RollBack
		}
		if err := end(); err != nil {
			return err
		}
	}
	committed := (count + 1) / 2
	if err := await("what was committed", func() bool { return len(own("tx", inbox.bodies())) >= committed }); err != nil {
		return err
	}
	for _, body := range own("tx", inbox.bodies()) {
		if number, _ := strconv.Atoi(strings.TrimPrefix(body, "tx-")); number%2 == 1 {
			return fmt.Errorf("rolled back and received: %s", body)
		}
	}
	return nil
}

func check() error {
	topic, inbox, checked := prefix+"TRANSACTION", &received{}, sync.Map{}
	consumer, err := newPushConsumer(topic, func(message *rmq.MessageView) rmq.ConsumerResult {
		inbox.add(message)
		return rmq.SUCCESS
	})
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	checker := &rmq.TransactionChecker{Check: func(message *rmq.MessageView) rmq.TransactionResolution {
		checked.Store(string(message.GetBody()), true)
		if string(message.GetBody()) == "check-commit" {
			return rmq.COMMIT
		}
		return rmq.ROLLBACK
	}}
	producer, err := newProducer(topic, rmq.WithTransactionChecker(checker))
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	for _, body := range []string{"check-commit", "check-rollback"} {
		message := &rmq.Message{Topic: topic, Body: []byte(body)}
		if _, err := producer.SendWithTransaction(context.Background(), message, producer.BeginTransaction()); err != nil {
			return err
		}
	}
	err = await("both are checked and one is received", func() bool {
		_, isRolledBack := checked.Load("check-rollback")
		return isRolledBack && len(own("check", inbox.bodies())) > 0
	})
	if err != nil {
		return err
	}
	if found := strings.Join(own("check", inbox.bodies()), " "); found != "check-commit" {
		return fmt.Errorf("received: %s", found)
	}
	return nil
}
