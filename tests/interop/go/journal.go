package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// journal is a file that outlives its process, as java/interop/Journal.java writes it: one line an event, written before
// anything else follows from the event. A line is one write, so that lines of several goroutines do not mix.
type journal struct {
	file *os.File
}

func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &journal{file: file}, nil
}

// sent notes a message that a producer has an outcome for.
func (events *journal) sent(number int, sentMs int64, outcome string) {
	word := strings.Join(strings.Fields(outcome), " ")
	events.line(fmt.Sprintf("%d\t%d\t%d\t0\t%s\n", number, sentMs, nowMs(), word))
}

// received notes a message that a listener is about to take.
func (events *journal) received(message *primitive.MessageExt) {
	events.line(fmt.Sprintf("%d\ttaken\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n", nowMs(), message.Topic, message.Queue.QueueId,
		message.QueueOffset, message.ReconsumeTimes, message.StoreTimestamp, len(message.Body),
		strings.ReplaceAll(string(message.Body), ".", "")))
}

func (events *journal) line(text string) {
	if _, err := events.file.WriteString(text); err != nil {
		panic(err)
	}
}

func nowMs() int64 {
	return time.Now().UnixMilli()
}
