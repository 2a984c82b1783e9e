use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
use rocketmq::{Producer, SimpleConsumer};

#[tokio::main]
async fn main() {
    let mut place = ClientOption::default();
    place.set_access_url(std::env::args().nth(1).unwrap_or("127.0.0.1:8081".to_string()));

    let mut option = ProducerOption::default();
    option.set_topics(vec!["greetings"]);
    let mut producer = Producer::new(option, place.clone()).unwrap();
    producer.start().await.unwrap();
    let message = MessageBuilder::builder()
        .set_topic("greetings")
        .set_tag("rust")
        .set_body("hello from Rust".as_bytes().to_vec())
        .build()
        .unwrap();
    producer.send(message).await.unwrap();

    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec!["greetings"]);
    option.set_consumer_group("rust-greeters");
    let mut consumer = SimpleConsumer::new(option, place).unwrap();
    consumer.start().await.unwrap();
    let wanted = FilterExpression::new(FilterType::Tag, "rust");
    let mut received = vec![];
    while received.is_empty() {
        received = consumer.receive("greetings", &wanted).await.unwrap();
    }
    for each in &received {
        println!("received {}", String::from_utf8_lossy(each.body()));
        consumer.ack(each).await.unwrap();
    }
    consumer.shutdown().await.unwrap();
    producer.shutdown().await.unwrap();
}
