// One process that drives the official Go client (rocketmq-client-go/v2) for the tests, so that a test pays no start.
//
// Protocol: one JSON object a line. In: {"operation": NAME, ...arguments}. Out: {"result": ...} or {"error": TEXT}, in
// the order of the requests. Producers and consumers live on between requests under the names the caller gave them.
// What the client itself logs goes to standard error.
//
// Two builds: with the last release (go.mod), and with the client as it is after it, which has TLS (tls.mod, tag tls).
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type operation func(request) (any, error)

func main() {
	rlog.SetLogLevel("error")
	producers := newProducers()
	transactions := newTransactions()
	consumers := newConsumers()
	operations := map[string]operation{
		"produce":                   producers.produce,
		"request":                   producers.request,
		"stop_producer":             producers.stop,
		"transact":                  transactions.transact,
		"checks":                    transactions.checks,
		"stop_transaction_producer": transactions.stop,
		"start_push_consumer":       consumers.startPush,
		"start_replier":             consumers.startReplier,
		"received":                  consumers.received,
		"stop_consumer":             consumers.stop,
		"pull_topic":                pullTopic,
		"pull_queue":                pullQueue,
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
	// Clients sign with the keys of the request, else with those of the environment.
	wanted.AccessKey, wanted.SecretKey = os.Getenv("INTEROP_ACCESS_KEY"), os.Getenv("INTEROP_SECRET_KEY")
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
