"""librdkafka as a process that is asked over pipes, with the requests of java/ClientAgent.java.

One JSON object per line: {"id": 1, "op": "read", "arguments": {...}} in, {"id": 1, "result": ...} or
{"id": 1, "error": "..."} out. Requests run side by side. The process ends when its standard input closes.
"""

import json
import os
import sys
import threading
import time

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

READ_TIMEOUT_S = 60
TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}

replies = threading.Lock()
producers = {}


def unhex(text):
    return None if text is None else bytes.fromhex(text)


def tohex(data):
    return None if data is None else data.hex()


def producer_open(arguments):
    producer = Producer(arguments["config"])
    if "transactional.id" in arguments["config"]:
        producer.init_transactions(30)
    producers[arguments["producer"]] = producer


def producer_close(arguments):
    producer = producers.pop(arguments["producer"], None)
    if producer is not None:
        producer.flush(30)


def send(producer, step, offsets):
    index = len(offsets)
    offsets.append(-1)

    def acknowledged(error, message):
        if error is None:
            offsets[index] = message.offset()
        elif error.code() != KafkaError._PURGE_QUEUE:
            offsets[index] = KafkaException(error)

    optional = {}
    if step["partition"] is not None:
        optional["partition"] = step["partition"]
    if step["timestamp"] is not None:
        optional["timestamp"] = step["timestamp"]
    headers = [(key, unhex(value)) for key, value in step["headers"]]
    value, key = unhex(step["value"]), unhex(step["key"])
    while True:
        try:
            producer.produce(step["topic"], value, key, headers=headers, on_delivery=acknowledged, **optional)
            return
        except BufferError:
            producer.poll(0.1)


def producer_run(arguments):
    producer = producers[arguments["producer"]]
    offsets = []
    for step in arguments["steps"]:
        match step["do"]:
            case "send":
                send(producer, step, offsets)
            case "flush":
                if producer.flush(60) > 0:
                    raise TimeoutError("records were not acknowledged")
            case "begin":
                producer.begin_transaction()
            case "commit":
                producer.commit_transaction(60)
            case "abort":
                producer.abort_transaction(60)
    for offset in offsets:
        if isinstance(offset, Exception):
            raise offset
    return offsets


def describe(message):
    kind, timestamp = message.timestamp()
    return {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp,
        "timestamp_type": TIMESTAMP_TYPES.get(kind, "NoTimestampType"),
        "key": tohex(message.key()),
        "value": tohex(message.value()),
        "headers": [[key, tohex(value)] for key, value in message.headers() or []],
    }


def read(arguments):
    consumer = Consumer(
        {
            "bootstrap.servers": arguments["bootstrap"],
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": arguments["isolation"],
            "fetch.wait.max.ms": 100,
            "check.crcs": True,
        }
    )
    try:
        topic = arguments["topic"]
        partitions = set(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        return read_to_end(consumer, partitions)
    finally:
        consumer.close()


def read_to_end(consumer, partitions):
    """The end of a partition is told by an event, which with read_committed comes at the last stable offset."""
    records, waiting = [], set(partitions)
    deadline = time.monotonic() + READ_TIMEOUT_S
    while waiting:
        if time.monotonic() > deadline:
            raise TimeoutError(f"partitions {waiting} were not read to the end, {len(records)} records")
        for message in consumer.consume(1000, 0.2):
            error = message.error()
            if error is None:
                records.append(describe(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                waiting.discard(message.partition())
            else:
                raise KafkaException(error)
    return records


OPS = {
    "hello": lambda arguments: "hello",
    "producer.open": producer_open,
    "producer.run": producer_run,
    "producer.close": producer_close,
    "read": read,
}


def reply(request):
    answer = {"id": request["id"]}
    try:
        answer["result"] = OPS[request["op"]](request["arguments"])
    except BaseException as error:  # Whatever it is, the one who asked must hear of it.
        answer["error"] = f"{type(error).__name__}: {error}"
    with replies:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


for line in sys.stdin:
    threading.Thread(target=reply, args=(json.loads(line),), daemon=True).start()
os._exit(0)
