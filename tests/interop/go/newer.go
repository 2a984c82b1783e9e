//go:build tls

package main

import (
	"os"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// The client after release 2.1.2: it speaks TLS, and has other names for some things. Whether it speaks TLS holds for a
// process: all of its clients share the option.
var speaksTls = os.Getenv("INTEROP_TLS") == "true"

const unknownState = primitive.UnkonwnState

func setPanicHandler(handler func(any)) {
	primitive.DefaultPanicHandler = handler
}

func producerTls() []producer.Option {
	return []producer.Option{producer.WithTls(speaksTls)}
}

func consumerTls() []consumer.Option {
	return []consumer.Option{consumer.WithTls(speaksTls)}
}
