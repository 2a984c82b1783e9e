//go:build !tls

package main

import (
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Release 2.1.2, which has no TLS.

const unknownState = primitive.UnknowState

func setPanicHandler(handler func(any)) {
	primitive.PanicHandler = handler
}

func producerTls() []producer.Option { return nil }

func consumerTls() []consumer.Option { return nil }
