// Drives the Node client ali-ons; its other half is ../node_agent.py.
//
// A line of input is {"operation": name, ...}, a line of output {"result": ...} or {"error": text}; what consumers
// receive waits here.
'use strict';

const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');

const silent = { debug() {}, info() {}, warn: console.error, error: console.error };
const producers = new Map();
const received = new Map();

function options(namesrv, more) {
  const httpclient = { request() { throw new Error('addresses come from the NameServer') } };
  return { httpclient, accessKeyId: 'key', accessKeySecret: 'secret', nameSrv: namesrv, logger: silent, ...more };
}

async function producerOf(namesrv, group) {
  let producer = producers.get(group);
  if (!producer) {
    producer = new Producer(options(namesrv, { producerGroup: group }));
    producer.on('error', error => console.error(error));
    await producer.ready();
    producers.set(group, producer);
  }
  return producer;
}

const operations = {
  async produce({ namesrv, topic, start, count, delay_level: delayLevel, sharding_key: shardingKey, body_bytes: bodyBytes }) {
    const producer = await producerOf(namesrv, `${topic}-producers`);
    const answers = [];
    for (let index = start; index < start + count; index++) {
      const message = new Message(topic, index % 2 === 0 ? 'even' : 'odd', `${topic}-${index}`.padEnd(bodyBytes || 0, '.'));
      message.keys = [ `key-${index}` ];
      message.properties.index = String(index);
      if (delayLevel) message.delayTimeLevel = delayLevel;
      if (shardingKey) message.shardingKey = shardingKey;
      const answer = await producer.send(message);
      answers.push([ answer.sendStatus, answer.messageQueue.queueId, Number(answer.queueOffset) ]);
    }
    return answers;
  },

  async push({ name, namesrv, group, topic, expression, failures }) {
    const taken = [];
    received.set(name, taken);
    const consumer = new Consumer(options(namesrv, {
      consumerGroup: group,
      consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    }));
    consumer.on('error', error => console.error(error));
    consumer.subscribe(topic, expression, async message => {
      taken.push({
        index: Number(message.properties.index),
        body: message.body.toString(),
        tags: message.tags,
        keys: message.keys,
        queue_id: message.queueId,
        reconsume_times: message.reconsumeTimes,
      });
      // What is returned of a message that came again is lost in the client.
      if (message.reconsumeTimes < failures) throw new Error('not yet');
    });
    await consumer.ready();
  },

  async received({ name, count, timeout_ms: timeoutMs }) {
    const taken = received.get(name);
    const deadline = Date.now() + timeoutMs;
    while (taken.length < count && Date.now() < deadline) {
      await new Promise(resolve => setTimeout(resolve, 20));
    }
    return taken.splice(0);
  },
};

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { operation, ...request } = JSON.parse(line);
    let answer;
    try {
      answer = { result: await operations[operation](request) || null };
    } catch (error) {
      answer = { error: String(error) };
    }
    process.stdout.write(JSON.stringify(answer) + '\n');
  }
  process.exit(0);
})();
