// Drives RocketMQ's official Node client for gRPC through one scenario: clients.js HOST:PORT TOPIC GROUP SCENARIO COUNT.
// Prints OK, or FAIL and why, with exit status 1. It knows nothing of Thermocline.
'use strict';

const { Producer, SimpleConsumer } = require('rocketmq-client-nodejs');

const TIMEOUT_MS = 60000;
const [, , endpoints, topic, group, scenario, countText] = process.argv;
const count = Number(countText);
const { INTEROP_ACCESS_KEY: accessKey, INTEROP_SECRET_KEY: accessSecret, INTEROP_TLS: tls } = process.env;
const common = { endpoints, namespace: '', sslEnabled: tls === 'true' };
if (accessKey) common.sessionCredentials = { accessKey, accessSecret };

function within(promise, what) {
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error(`not in time: ${what}`)), TIMEOUT_MS));
  return Promise.race([promise, late]);
}

function verify(holds, what) {
  if (!holds) throw new Error(what);
}

async function producer(topics) {
  const made = new Producer({ ...common, topics });
  await within(made.startup(), 'startup');
  return made;
}

const scenarios = {
  // This client loses settings that come before its last route answer; it must start all the same.
  async starts() {
    for (let i = 0; i < count; i++) await producer([topic, `${topic}B`, `${topic}C`]);
  },
  async simple() {
    const sender = await producer([topic]);
    const sent = [];
    for (let i = 0; i < count; i++) {
      const receipt = await sender.send({
        topic, tag: 'tag', keys: [`key-${i}`], body: Buffer.from(`тело ${i}`), properties: new Map([['имя', 'значение']]),
      });
      sent.push(receipt.messageId);
    }
    const subscriptions = new Map().set(topic, 'tag');
    const consumer = new SimpleConsumer({ ...common, consumerGroup: group, subscriptions });
    await within(consumer.startup(), 'startup of the consumer');
    const received = new Set();
    const deadline = Date.now() + TIMEOUT_MS;
    while (received.size < count) {
      verify(Date.now() < deadline, `${received.size} of ${count}`);
      for (const message of await consumer.receive(16, 30000)) {
        verify(!received.has(message.messageId), `twice: ${message.messageId}`);
        verify(message.body.toString().startsWith('тело '), `body: ${message.body}`);
        verify(message.properties.get('имя') === 'значение', 'properties');
        received.add(message.messageId);
        await consumer.ack(message);
      }
    }
    verify(sent.every(id => received.has(id)), 'ids differ');
  },
};

scenarios[scenario]().then(
  () => { console.log('OK'); process.exit(0); },
  error => { console.log(`FAIL ${error.stack}`); process.exit(1); },
);
