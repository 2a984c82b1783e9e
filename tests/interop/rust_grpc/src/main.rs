//! Drives RocketMQ's official Rust client for gRPC through one scenario: HOST:PORT PREFIX SCENARIO COUNT plain.
//!
//! Topics are PREFIX with the type of their messages behind it, the group is PREFIX-SCENARIO. Prints "OK" when all
//! messages came as they must, else "FAIL" and why, with exit status 1. It knows nothing of Thermocline. This version of
//! the client has no push consumer, no TLS and no change of the invisible time.
//!
//! With HOST:PORT alone it is the first program of docs/clients.md: built with this one, for a build takes minutes.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionChecker, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const TIMEOUT: Duration = Duration::from_secs(60);
const INVISIBLE: Duration = Duration::from_secs(30);

struct Scenario {
    endpoint: String,
    prefix: String,
    group: String,
    count: usize,
}

mod first_program {
    include!("first_program.rs");

    pub fn run() {
        main();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.len() {
        2 => first_program::run(),
        _ => run_scenario(arguments),
    }
}

#[tokio::main]
async fn run_scenario(arguments: Vec<String>) {
    let scenario = Scenario {
        endpoint: arguments[1].clone(),
        prefix: arguments[2].clone(),
        group: format!("{}-{}", arguments[2], arguments[3]),
        count: arguments[4].parse().unwrap(),
    };
    let outcome = match arguments[3].as_str() {
        "simple" => scenario.simple().await,
        "fifo" => scenario.fifo().await,
        "delay" => scenario.delay().await,
        "transaction" => scenario.transaction().await,
        "check" => scenario.check().await,
        other => Err(format!("no scenario {other}").into()),
    };
    match outcome {
        Ok(()) => println!("OK"),
        Err(error) => {
            println!("FAIL {error}");
            std::process::exit(1);
        }
    }
}

impl Scenario {
    fn place(&self) -> ClientOption {
        let mut option = ClientOption::default();
        option.set_access_url(&self.endpoint);
        option.set_long_polling_timeout(Duration::from_secs(10)); // a receive's deadline, too
        option
    }

    async fn producer(&self, topic: &str) -> Result<Producer, Box<dyn std::error::Error>> {
        let mut option = ProducerOption::default();
        option.set_topics(vec![topic]);
        let mut producer = Producer::new(option, self.place())?;
        producer.start().await?;
        Ok(producer)
    }

    async fn transaction_producer(
        &self,
        topic: &str,
        checker: Box<TransactionChecker>,
    ) -> Result<Producer, Box<dyn std::error::Error>> {
        let mut option = ProducerOption::default();
        option.set_topics(vec![topic]);
        let mut producer = Producer::new_transaction_producer(option, self.place(), checker)?;
        producer.start().await?;
        Ok(producer)
    }

    async fn consumer(&self, topic: &str) -> Result<SimpleConsumer, Box<dyn std::error::Error>> {
        let mut option = SimpleConsumerOption::default();
        option.set_topics(vec![topic]);
        option.set_consumer_group(&self.group);
        let mut consumer = SimpleConsumer::new(option, self.place())?;
        consumer.start().await?;
        Ok(consumer)
    }

    /// Receive and acknowledge until there are `count` messages whose bodies begin with `name`; these, in order.
    async fn receive(
        &self,
        consumer: &SimpleConsumer,
        topic: &str,
        name: &str,
        count: usize,
    ) -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let everything = FilterExpression::new(FilterType::Tag, "*");
        let mut bodies = vec![];
        let deadline = Instant::now() + TIMEOUT;
        while bodies.len() < count {
            if Instant::now() > deadline {
                return Err(format!("{} of {count} messages: {bodies:?}", bodies.len()).into());
            }
            for message in consumer.receive_with(topic, &everything, 16, INVISIBLE).await? {
                consumer.ack(&message).await?;
                let body = text(&message);
                if body.starts_with(name) {
                    bodies.push(body);
                }
            }
        }
        Ok(bodies)
    }

    async fn simple(&self) -> Outcome {
        let topic = format!("{}NORMAL", self.prefix);
        let producer = self.producer(&topic).await?;
        let mut sent = HashSet::new();
        for number in 0..self.count {
            let message = MessageBuilder::builder()
                .set_topic(&topic)
                .set_tag("tag")
                .set_keys(vec!["ключ", "key"])
                .set_properties(HashMap::from([("имя", "значение")]))
                .set_body(format!("тело {number}").into_bytes())
                .build()?;
            sent.insert(producer.send(message).await?.message_id().to_string());
        }
        let consumer = self.consumer(&topic).await?;
        let wanted = FilterExpression::new(FilterType::Tag, "tag");
        let mut received = HashSet::new();
        let deadline = Instant::now() + TIMEOUT;
        while received.len() < sent.len() {
            check(Instant::now() < deadline, "not in time: the messages")?;
            for message in consumer.receive_with(&topic, &wanted, 16, INVISIBLE).await? {
                check(received.insert(message.message_id().to_string()), "a message came twice")?;
                check(message.properties().get("имя").map(String::as_str) == Some("значение"), "the property")?;
                check(message.keys().len() == 2 && message.tag() == Some("tag"), "keys and tag")?;
                consumer.ack(&message).await?;
            }
        }
        check(received == sent, "the ids differ")?;
        consumer.shutdown().await?;
        producer.shutdown().await?;
        Ok(())
    }

    /// Messages of one group arrive in order; one that is not acknowledged comes again before what is behind it.
    async fn fifo(&self) -> Outcome {
        let topic = format!("{}FIFO", self.prefix);
        let producer = self.producer(&topic).await?;
        for number in 0..self.count {
            let body = format!("a-{number}").into_bytes();
            producer.send(MessageBuilder::fifo_message_builder(&topic, body, "a").build()?).await?;
        }
        let consumer = self.consumer(&topic).await?;
        let everything = FilterExpression::new(FilterType::Tag, "*");
        let deadline = Instant::now() + TIMEOUT;
        loop {
            check(Instant::now() < deadline, "not in time: the first message")?;
            let held = consumer.receive_with(&topic, &everything, 1, Duration::from_secs(2)).await?;
            if let Some(message) = held.first() {
                check(text(message) == "a-0", "not the first message")?;
                break; // not acknowledged
            }
        }
        let bodies = self.receive(&consumer, &topic, "a-", self.count).await?;
        let expected: Vec<String> = (0..self.count).map(|number| format!("a-{number}")).collect();
        check(bodies == expected, &format!("out of order: {bodies:?}"))
    }

    async fn delay(&self) -> Outcome {
        let topic = format!("{}DELAY", self.prefix);
        let producer = self.producer(&topic).await?;
        let consumer = self.consumer(&topic).await?;
        let due = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + 4;
        let body = "later".as_bytes().to_vec();
        producer.send(MessageBuilder::delay_message_builder(&topic, body, due as i64).build()?).await?;
        self.receive(&consumer, &topic, "later", 1).await?;
        check(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() >= due, "early")
    }

    async fn transaction(&self) -> Outcome {
        let topic = format!("{}TRANSACTION", self.prefix);
        let consumer = self.consumer(&topic).await?;
        let unknown = Box::new(|_, _| TransactionResolution::UNKNOWN);
        let producer = self.transaction_producer(&topic, unknown).await?;
        let mut expected = HashSet::new();
        for number in 0..self.count {
            let body = format!("tx-{number}");
            let message = MessageBuilder::transaction_message_builder(&topic, body.clone().into_bytes()).build()?;
            let transaction = producer.send_transaction_message(message).await?;
            if number % 2 == 0 {
                transaction.commit().await?;
                expected.insert(body);
            } else {
                transaction.rollback().await?;
            }
        }
        let bodies = self.receive(&consumer, &topic, "tx-", expected.len()).await?;
        check(bodies.iter().cloned().collect::<HashSet<_>>() == expected, &format!("received {bodies:?}"))
    }

    async fn check(&self) -> Outcome {
        let topic = format!("{}TRANSACTION", self.prefix);
        let consumer = self.consumer(&topic).await?;
        let checked = Arc::new(Mutex::new(HashSet::new()));
        let noted = checked.clone();
        let checker = Box::new(move |_, message: MessageView| {
            noted.lock().unwrap().insert(text(&message));
            match text(&message).as_str() {
                "check-commit" => TransactionResolution::COMMIT,
                _ => TransactionResolution::ROLLBACK,
            }
        });
        let producer = self.transaction_producer(&topic, checker).await?;
        for body in ["check-commit", "check-rollback"] {
            let message = MessageBuilder::transaction_message_builder(&topic, body.as_bytes().to_vec()).build()?;
            producer.send_transaction_message(message).await?;
        }
        let bodies = self.receive(&consumer, &topic, "check-", 1).await?;
        check(bodies == ["check-commit"], &format!("received {bodies:?}"))?;
        let deadline = Instant::now() + TIMEOUT;
        while !checked.lock().unwrap().contains("check-rollback") {
            check(Instant::now() < deadline, "not in time: the second check")?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

fn text(message: &MessageView) -> String {
    String::from_utf8_lossy(message.body()).to_string()
}

fn check(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(what.into()) }
}
