// One process that drives the official Go client (rocketmq-client-go/v2) for the tests, so that a test pays no start.
//
// Protocol: one JSON object a line. In: {"operation": NAME, ...arguments}. Out: {"result": ...} or {"error": TEXT}, in
// the order of the requests. Producers and consumers live on between requests under the names the caller gave them.
// What the client itself logs goes to standard error.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// request is one line of input; operations read the members that they know.
type request struct {
	Operation   string            `json:"operation"`
	Name        string            `json:"name"`
	NameServer  string            `json:"namesrv"`
	Group       string            `json:"group"`
	Topic       string            `json:"topic"`
	Topics      map[string]string `json:"topics"`
	Kind        string            `json:"kind"`
	Prefix      string            `json:"prefix"`
	Tags        []string          `json:"tags"`
	Start       int               `json:"start"`
	Count       int               `json:"count"`
	BodyBytes   int               `json:"body_bytes"`
	BatchSize   int               `json:"batch_size"`
	Shards      int               `json:"shards"`
	DelayLevel  int               `json:"delay_level"`
	Orderly     bool              `json:"orderly"`
	Broadcast   bool              `json:"broadcast"`
	From        string            `json:"from"`
	RefuseFirst int               `json:"refuse_first"`
	RefuseAll   bool              `json:"refuse_all"`
	TriesMax    int32             `json:"max_reconsume_times"`
	TimeoutMs   int64             `json:"timeout_ms"`
	loadRequest
}

type operation func(request) (any, error)

func main() {
	rlog.SetLogLevel("error")
	producers := newProducers()
	consumers := newConsumers()
	operations := map[string]operation{
		"produce":             producers.produce,
		"stop_producer":       producers.stop,
		"start_push_consumer": consumers.startPush,
		"received":            consumers.received,
		"stop_consumer":       consumers.stop,
		"pull_topic":          pullTopic,
	}
	maps.Copy(operations, newLoad(producers).operations())
	requests := bufio.NewScanner(os.Stdin)
	requests.Buffer(make([]byte, 1<<20), 64<<20)
	answers := json.NewEncoder(os.Stdout)
	for requests.Scan() {
		if err := answers.Encode(answer(operations, requests.Bytes())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func answer(operations map[string]operation, line []byte) map[string]any {
	var wanted request
	if err := json.Unmarshal(line, &wanted); err != nil {
		return map[string]any{"error": err.Error()}
	}
	run, known := operations[wanted.Operation]
	if !known {
		return map[string]any{"error": "no such operation: " + wanted.Operation}
	}
	result, err := run(wanted)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	return map[string]any{"result": result}
}
