package main

import (
	"encoding/json"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// request is one line of input; operations read the members that they know.
type request struct {
	Operation         string               `json:"operation"`
	Name              string               `json:"name"`
	Instance          string               `json:"instance"`
	NameServer        string               `json:"namesrv"`
	Group             string               `json:"group"`
	Topic             string               `json:"topic"`
	Topics            map[string]selection `json:"topics"`
	Expression        selection            `json:"expression"`
	BrokerName        string               `json:"broker_name"`
	QueueID           int                  `json:"queue_id"`
	Offset            int64                `json:"offset"`
	Kind              string               `json:"kind"`
	Prefix            string               `json:"prefix"`
	Tags              []string             `json:"tags"`
	Start             int                  `json:"start"`
	Count             int                  `json:"count"`
	BodyBytes         int                  `json:"body_bytes"`
	CompressOverBytes int                  `json:"compress_over_bytes"`
	BatchSize         int                  `json:"batch_size"`
	Shards            int                  `json:"shards"`
	Flag              int32                `json:"flag"`
	Properties        map[string]string    `json:"properties"`
	DelayLevel        int                  `json:"delay_level"`
	Local             []string             `json:"local"`
	Check             []string             `json:"check"`
	Trace             bool                 `json:"trace"`
	Orderly           bool                 `json:"orderly"`
	Broadcast         bool                 `json:"broadcast"`
	From              string               `json:"from"`
	Timestamp         string               `json:"timestamp"`
	Strategy          string               `json:"strategy"`
	PullCount         int32                `json:"pull_count"`
	PullIntervalMs    int64                `json:"pull_interval_ms"`
	RefuseFirst       int                  `json:"refuse_first"`
	RefuseAll         bool                 `json:"refuse_all"`
	RefuseAlways      []string             `json:"refuse_always"`
	RetryDelayLevel   *int                 `json:"retry_delay_level"`
	TriesMax          int32                `json:"max_reconsume_times"`
	TimeoutMs         int64                `json:"timeout_ms"`
	AccessKey         string               `json:"access_key"`
	SecretKey         string               `json:"secret_key"`
	SecurityToken     string               `json:"security_token"`
	loadRequest
}

// credentials are what the requests of the client are signed with.
func (wanted request) credentials() primitive.Credentials {
	return primitive.Credentials{
		AccessKey:     wanted.AccessKey,
		SecretKey:     wanted.SecretKey,
		SecurityToken: wanted.SecurityToken,
	}
}

// instance is the name of the client that a producer or consumer belongs to.
func (wanted request) instance() string {
	if wanted.Instance != "" {
		return wanted.Instance
	}
	return wanted.Name
}

// selection says which messages of a topic are wanted: "a || b" by tags, {"sql": "a > 1"} by properties.
type selection consumer.MessageSelector

func (chosen *selection) UnmarshalJSON(data []byte) error {
	var tags string
	if json.Unmarshal(data, &tags) == nil {
		*chosen = selection{Type: consumer.TAG, Expression: tags}
		return nil
	}
	var properties struct {
		SQL string `json:"sql"`
	}
	if err := json.Unmarshal(data, &properties); err != nil {
		return err
	}
	*chosen = selection{Type: consumer.SQL92, Expression: properties.SQL}
	return nil
}
