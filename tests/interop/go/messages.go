package main

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// body gives message number index its body: "prefix-index", then dots up to the requested size.
func body(prefix string, index int, sizeBytes int) []byte {
	text := fmt.Sprintf("%s-%d", prefix, index)
	if len(text) < sizeBytes {
		text += strings.Repeat(".", sizeBytes-len(text))
	}
	return []byte(text)
}

// build makes message number index of a produce request.
func build(wanted request, index int) *primitive.Message {
	message := primitive.NewMessage(wanted.Topic, body(wanted.Prefix, index, wanted.BodyBytes))
	if len(wanted.Tags) > 0 {
		message.WithTag(wanted.Tags[index%len(wanted.Tags)])
	}
	message.WithKeys([]string{fmt.Sprintf("%s-key-%d", wanted.Prefix, index)})
	message.WithProperty("index", strconv.Itoa(index))
	for name, value := range wanted.Properties {
		message.WithProperty(name, value)
	}
	message.Flag = wanted.Flag
	if wanted.DelayLevel > 0 {
		message.WithDelayTimeLevel(wanted.DelayLevel)
	}
	if wanted.BrokerName != "" {
		message.Queue = &primitive.MessageQueue{
			Topic: wanted.Topic, BrokerName: wanted.BrokerName, QueueId: wanted.QueueID,
		}
	}
	if wanted.Shards > 0 {
		message.WithShardingKey(strconv.Itoa(index % wanted.Shards))
	}
	return message
}

// shown is a message as the tests see it.
func shown(message *primitive.MessageExt) map[string]any {
	return map[string]any{
		"topic":              message.Topic,
		"broker_name":        message.Queue.BrokerName,
		"queue_id":           message.Queue.QueueId,
		"queue_offset":       message.QueueOffset,
		"physical_offset":    message.CommitLogOffset,
		"store_size":         message.StoreSize,
		"message_id":         message.MsgId,
		"sys_flag":           message.SysFlag,
		"flag":               message.Flag,
		"body":               base64.StdEncoding.EncodeToString(message.Body),
		"tags":               message.GetTags(),
		"keys":               message.GetKeys(),
		"properties":         message.GetProperties(),
		"reconsume_times":    message.ReconsumeTimes,
		"born_timestamp_ms":  message.BornTimestamp,
		"store_timestamp_ms": message.StoreTimestamp,
	}
}
