"""Orders on Spark: write a topic, look at it as a table, follow it as a stream into another. Start an agent first:

    streamhouse up
    streamhouse spark submit examples/spark_orders.py

Each part begins with `# %%`: editors that know notebooks run them one by one. The topics `example-orders` and
`example-totals` are made anew each time.
"""

# %% A session. In a program that Spark started, and in its shell, it is the one that is there.
import tempfile

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import streamhouse
import streamhouse.spark
from streamhouse.spark.runtime import default_agents

AGENTS = default_agents()  # STREAMHOUSE_AGENTS, or localhost:8080

spark = streamhouse.spark.open_session("orders", agents=AGENTS)
spark.conf.set("spark.sql.session.timeZone", "UTC")

# %% A topic with 600 orders, one a second for ten minutes, of five customers.
NOON_MS = 1_794_744_000_000
ITEMS = ("tea", "coffee", "cake")

with streamhouse.SyncClient(AGENTS) as client:
    for topic in ("example-orders", "example-totals"):
        client.topics.delete(topic, missing_ok=True)
        client.topics.create(topic, partitions=3)
    with client.producer("example-orders", compression="lz4") as producer:
        for number in range(600):
            order = {"item": ITEMS[number % 3], "price": 2.5 + number % 4}
            producer.enqueue(order, key=f"customer-{number % 5}", timestamp_ms=NOON_MS + 1000 * number)

# %% The topic as a table. Executors read what is in the object store themselves; the agent serves the newest records.
records = spark.read.format("streamhouse").option("topic", "example-orders").load()
records.groupBy("partition").agg(f.min("offset"), f.max("offset")).orderBy("partition").show()


# %% Values are bytes; these hold JSON.
def priced(records: DataFrame) -> DataFrame:
    value = f.from_json(f.col("value").cast("string"), "item string, price double")
    return records.select(f.col("key").cast("string").alias("customer"), "timestamp", value.alias("order"))


spent = priced(records).groupBy("customer").agg(f.count("*").alias("orders"), f.sum("order.price").alias("spent"))
spent.orderBy("customer").show()

# %% The topic as a stream: what was sold in every two minutes, written to another topic, each total once.
stream = spark.readStream.format("streamhouse").option("topic", "example-orders")
totals = (
    priced(stream.option("startingOffsets", "earliest").load())
    .withWatermark("timestamp", "1 minute")
    .groupBy(f.window("timestamp", "2 minutes"), "order.item")
    .agg(f.count("*").alias("orders"), f.sum("order.price").alias("sold"))
    .select(f.col("item").alias("key"), f.to_json(f.struct("window", "item", "orders", "sold")).alias("value"))
)
with tempfile.TemporaryDirectory() as checkpoints:
    query = (
        totals.writeStream.format("streamhouse")
        .option("topic", "example-totals")
        .option("checkpointLocation", checkpoints)
        .trigger(availableNow=True)  # all that is there now, then stop; leave it out to go on for ever
        .start()
    )
    query.awaitTermination()

# %% What the stream wrote. Windows that may still get late orders are not in it yet.
written = spark.read.format("streamhouse").option("topic", "example-totals").load()
columns = "struct<window: struct<start: timestamp, end: timestamp>, item: string, orders: long, sold: double>"
sold = written.select(f.from_json(f.col("value").cast("string"), columns).alias("total")).select("total.*")
sold.select("window.start", "item", "orders", "sold").orderBy("start", "item").show()

spark.stop()
