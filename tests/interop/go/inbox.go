package main

import (
	"slices"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// inbox holds what one consumer has received and not yet handed over.
type inbox struct {
	mutex        sync.Mutex
	changed      chan struct{}
	messages     []any
	refuseFirst  int
	refuseAll    bool
	refuseAlways []string
	stop         func() error
}

// newInbox makes the inbox of a consumer: refuse_first messages are refused unseen when they come for the first time;
// refuse_always (numbers of messages) and refuse_all are kept and refused, however often they come.
func newInbox(wanted request, stop func() error) *inbox {
	return &inbox{
		changed:      make(chan struct{}),
		messages:     []any{},
		refuseFirst:  wanted.RefuseFirst,
		refuseAll:    wanted.RefuseAll,
		refuseAlways: wanted.RefuseAlways,
		stop:         stop,
	}
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
	isRefused := box.refuseAll
	for _, message := range messages {
		box.messages = append(box.messages, shown(message))
		isRefused = isRefused || slices.Contains(box.refuseAlways, message.GetProperty("index"))
	}
	close(box.changed)
	box.changed = make(chan struct{})
	return !isRefused
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
