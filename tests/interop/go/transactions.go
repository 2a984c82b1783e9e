package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// transactions are the producers of transactions by name. What a local transaction decides stands in its message:
// property "local" for the time of sending, property "check" for every check (the last word of a list for those beyond
// it). Both are words separated by commas: commit, rollback, unknown.
type transactions struct {
	running map[string]*transactor
}

type transactor struct {
	sender  rocketmq.TransactionProducer
	decider *decider
}

type decider struct {
	mutex  sync.Mutex
	checks map[string]int
}

func newTransactions() *transactions {
	return &transactions{running: map[string]*transactor{}}
}

// transact sends messages start to start + count; local and check are lists of words, taken in turn.
func (all *transactions) transact(wanted request) (any, error) {
	found, err := all.find(wanted)
	if err != nil {
		return nil, err
	}
	answers := []any{}
	for index := wanted.Start; index < wanted.Start+wanted.Count; index++ {
		message := build(wanted, index)
		message.WithProperty("local", wanted.Local[index%len(wanted.Local)])
		message.WithProperty("check", wanted.Check[index%len(wanted.Check)])
		result, err := found.sender.SendMessageInTransaction(context.Background(), message)
		if err != nil {
			return nil, err
		}
		answers = append(answers, map[string]any{
			"status":         statusNames[result.Status],
			"message_id":     result.MsgID,
			"transaction_id": result.TransactionID,
			"state":          stateNames[result.State],
			"queue_offset":   result.QueueOffset,
		})
	}
	return answers, nil
}

// checks tells how often each message was asked about here, by its number.
func (all *transactions) checks(wanted request) (any, error) {
	found, known := all.running[wanted.Name]
	if !known {
		return nil, fmt.Errorf("no producer called %s", wanted.Name)
	}
	found.decider.mutex.Lock()
	defer found.decider.mutex.Unlock()
	counts := map[string]int{}
	for index, count := range found.decider.checks {
		counts[index] = count
	}
	return counts, nil
}

func (all *transactions) stop(wanted request) (any, error) {
	found, known := all.running[wanted.Name]
	if !known {
		return nil, nil
	}
	delete(all.running, wanted.Name)
	return nil, found.sender.Shutdown()
}

func (all *transactions) find(wanted request) (*transactor, error) {
	if known, ok := all.running[wanted.Name]; ok {
		return known, nil
	}
	made := &transactor{decider: &decider{checks: map[string]int{}}}
	var err error
	made.sender, err = rocketmq.NewTransactionProducer(made.decider, producerOptions(wanted)...)
	if err != nil {
		return nil, err
	}
	if err := made.sender.Start(); err != nil {
		return nil, err
	}
	all.running[wanted.Name] = made
	return made, nil
}

func (decides *decider) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return state(message.GetProperty("local"), 0)
}

func (decides *decider) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	if message.TransactionId != message.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex) {
		fmt.Fprintln(os.Stderr, "a check with transaction id", message.TransactionId)
		return unknownState
	}
	decides.mutex.Lock()
	defer decides.mutex.Unlock()
	index := message.GetProperty("index")
	number := decides.checks[index]
	decides.checks[index]++
	return state(message.GetProperty("check"), number)
}

func state(words string, number int) primitive.LocalTransactionState {
	each := strings.Split(words, ",")
	switch each[min(number, len(each)-1)] {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	default:
		return unknownState
	}
}

var stateNames = map[primitive.LocalTransactionState]string{
	primitive.CommitMessageState:   "COMMIT_MESSAGE",
	primitive.RollbackMessageState: "ROLLBACK_MESSAGE",
	unknownState:                   "UNKNOW",
}
