// Drives RocketMQ's official Node client for gRPC through one scenario: HOST:PORT PREFIX SCENARIO COUNT tls|plain.
//
// Topics are PREFIX with the type of their messages behind it, the group is PREFIX-SCENARIO. Prints "OK" when all
// messages came as they must, else "FAIL" and why, with exit status 1. It knows nothing of Thermocline.
'use strict';

const {
  ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');
const { TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const TIMEOUT_MS = 60000;
const START_TIMEOUT_MS = 30000;
const [, , endpoints, prefix, scenario, countText, security] = process.argv;
const count = Number(countText);
const group = `${prefix}-${scenario}`;
const { INTEROP_ACCESS_KEY: accessKey, INTEROP_SECRET_KEY: accessSecret } = process.env;
const place = { endpoints, namespace: '', sslEnabled: security === 'tls' };
if (accessKey) place.sessionCredentials = { accessKey, accessSecret };

const sleep = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));

function within(promise, what) {
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error(`not in time: ${what}`)), START_TIMEOUT_MS));
  return Promise.race([promise, late]);
}

function verify(holds, what) {
  if (!holds) throw new Error(what);
}

async function until(condition, what) {
  for (const deadline = Date.now() + TIMEOUT_MS; !condition(); await sleep(20)) {
    verify(Date.now() < deadline, `not in time: ${what}`);
  }
}

async function startProducer(topics, checker) {
  const made = new Producer({ ...place, topics, checker });
  await within(made.startup(), 'startup of the producer');
  return made;
}

/** A push consumer; `listen` gets each message and says whether it succeeded. */
async function startPush(topic, listen, consumerGroup = group) {
  const made = new PushConsumer({
    ...place,
    consumerGroup,
    subscriptions: new Map([[topic, FilterExpression.SUB_ALL]]),
    messageListener: { consume: async view => (listen(view) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE) },
  });
  await within(made.startup(), 'startup of the push consumer');
  return made;
}

/** The bodies of this scenario: other scenarios send to the same topic. */
const own = (name, bodies) => bodies.filter(each => each.startsWith(`${name}-`));

const numbers = () => [...Array(count).keys()];

const scenarios = {
  // This client loses settings that come before its last route answer; it must start all the same.
  async starts() {
    for (const _ of numbers()) await startProducer(['NORMAL', 'FIFO', 'DELAY'].map(type => prefix + type));
  },

  async simple() {
    const topic = `${prefix}NORMAL`;
    const sender = await startProducer([topic]);
    const sent = [];
    for (const i of numbers()) {
      const receipt = await sender.send({
        topic, tag: 'tag', keys: [`key-${i}`], body: Buffer.from(`тело ${i}`), properties: new Map([['имя', 'значение']]),
      });
      sent.push(receipt.messageId);
    }
    const subscriptions = new Map().set(topic, 'tag');
    const consumer = new SimpleConsumer({ ...place, consumerGroup: group, subscriptions });
    await within(consumer.startup(), 'startup of the consumer');
    const received = new Set();
    const deadline = Date.now() + TIMEOUT_MS;
    while (received.size < count) {
      verify(Date.now() < deadline, `${received.size} of ${count}`);
      for (const message of await consumer.receive(16, 30000)) {
        verify(!received.has(message.messageId), `twice: ${message.messageId}`);
        verify(message.body.toString().startsWith('тело '), `body: ${message.body}`);
        verify(message.properties.get('имя') === 'значение', 'properties');
        if (!received.size) await consumer.changeInvisibleDuration(message, 60000);
        received.add(message.messageId);
        await consumer.ack(message);
      }
    }
    verify(sent.every(id => received.has(id)), 'ids differ');
  },

  async push() {
    const topic = `${prefix}NORMAL`;
    const bodies = [];
    await startPush(topic, view => bodies.push(view.body.toString()));
    const sender = await startProducer([topic]);
    for (const i of numbers()) await sender.send({ topic, body: Buffer.from(`push-${i}`) });
    await until(() => own('push', bodies).length >= count, 'the messages');
    verify(new Set(own('push', bodies)).size === own('push', bodies).length, `a message came twice: ${bodies}`);
  },

  async retry() {
    const topic = `${prefix}NORMAL`;
    const attempts = [];
    await startPush(topic, view => {
      if (view.body.toString() !== 'retry') return true;
      attempts.push(view.deliveryAttempt);
      return view.deliveryAttempt >= 3;
    });
    const sender = await startProducer([topic]);
    await sender.send({ topic, body: Buffer.from('retry') });
    await until(() => attempts.length >= 3, 'three attempts');
    verify(attempts.join() === '1,2,3', `attempts ${attempts}`);
  },

  // One message of each group fails once; what is behind it in its group waits.
  async fifo() {
    const topic = `${prefix}FIFO`;
    const byGroup = { a: [], b: [], c: [] };
    const failed = new Set();
    const sender = await startProducer([topic]);
    for (const i of numbers()) {
      for (const name of Object.keys(byGroup)) {
        await sender.send({ topic, messageGroup: name, body: Buffer.from(`${name}-${i}`) });
      }
    }
    await startPush(topic, view => {
      const [name, number] = view.body.toString().split('-');
      if (number === '2' && !failed.has(name)) {
        failed.add(name);
        return false;
      }
      return byGroup[name].push(Number(number));
    });
    await until(() => Object.values(byGroup).every(each => each.length >= count), 'ordered messages');
    for (const each of Object.values(byGroup)) {
      verify(each.join() === numbers().join(), `out of order: ${JSON.stringify(byGroup)}`);
    }
  },

  async delay() {
    const topic = `${prefix}DELAY`;
    const times = [];
    await startPush(topic, () => times.push(Date.now()));
    const sender = await startProducer([topic]);
    const due = Date.now() + 3000;
    const receipt = await sender.send({ topic, body: Buffer.from('later'), deliveryTimestamp: new Date(due) });
    verify(receipt.recallHandle, 'no recall handle');
    await until(() => times.length, 'the delayed message');
    verify(times[0] >= due, `early by ${due - times[0]} ms`);
  },

  async transaction() {
    const topic = `${prefix}TRANSACTION`;
    const bodies = [];
    await startPush(topic, view => bodies.push(view.body.toString()));
    const sender = await startProducer([topic], {
      check: async () => TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
    });
    for (const i of numbers()) {
      const transaction = sender.beginTransaction();
      await sender.send({ topic, body: Buffer.from(`tx-${i}`) }, transaction);
      await (i % 2 ? transaction.rollback() : transaction.commit());
    }
    await until(() => own('tx', bodies).length >= Math.ceil(count / 2), 'what was committed');
    verify(own('tx', bodies).every(each => Number(each.slice(3)) % 2 === 0), `rolled back and received: ${bodies}`);
  },

  async check() {
    const topic = `${prefix}TRANSACTION`;
    const bodies = [];
    const checked = [];
    await startPush(topic, view => bodies.push(view.body.toString()));
    const sender = await startProducer([topic], {
      check: async view => {
        checked.push(view.body.toString());
        return view.body.toString() === 'check-commit' ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
      },
    });
    for (const body of ['check-commit', 'check-rollback']) {
      await sender.send({ topic, body: Buffer.from(body) }, sender.beginTransaction());
    }
    await until(() => checked.includes('check-rollback') && own('check', bodies).length, 'both are checked');
    verify(own('check', bodies).join() === 'check-commit', `received: ${bodies}`);
  },

  // Sends a message every COUNT milliseconds and consumes all that is in the topic, until its input ends; a line of input
  // ends the sending. Prints "ready", "sent MILLISECONDS BODY" when a message is acknowledged, "got MILLISECONDS BODY"
  // when one is received, and "stopped" behind the last that it sent.
  async load() {
    const topic = `${prefix}NORMAL`;
    const note = (what, body) => console.log(`${what} ${Date.now()} ${body}`);
    await startPush(topic, view => { note('got', view.body.toString()); return true; }, `${group}-node`);
    const sender = await startProducer([topic]);
    note('ready', '');
    let isStopped = false;
    process.stdin.on('data', () => { isStopped = true; });
    const isEnded = new Promise(resolve => process.stdin.on('end', resolve));
    for (let number = 0; !isStopped; number++) {
      const body = `node-${number}`;
      try {
        await sender.send({ topic, body: Buffer.from(body) });
        note('sent', body);
      } catch { /* not acknowledged: it may be there or not */ }
      await sleep(count);
    }
    note('stopped', '');
    await isEnded;
  },
};

scenarios[scenario]().then(
  () => { console.log('OK'); process.exit(0); },
  error => { console.log(`FAIL ${error.stack}`); process.exit(1); },
);
