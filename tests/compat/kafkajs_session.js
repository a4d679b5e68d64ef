// What kafkajs can do without consumer groups: administer, produce, and fetch as its consumer would.
// Called by test_kafkajs.py with the folder of node_modules, the agent's address and a topic; prints JSON.
const [modules, bootstrap, topic] = process.argv.slice(2)
const { Kafka, CompressionTypes, logLevel } = require(`${modules}/kafkajs`)

const kafka = new Kafka({ clientId: 'compat', brokers: [bootstrap], logLevel: logLevel.NOTHING })
const text = (value) => (value === null ? null : value.toString())

async function fetchAll(partition, count) {
  // kafkajs offers fetching only through consumer groups; its broker object is what a consumer uses below that.
  const Cluster = require(`${modules}/kafkajs/src/cluster`)
  const createSocketFactory = require(`${modules}/kafkajs/src/network/socketFactory`)
  const { createLogger } = require(`${modules}/kafkajs/src/loggers`)
  const LoggerConsole = require(`${modules}/kafkajs/src/loggers/console`)
  const logger = createLogger({ level: logLevel.NOTHING, logCreator: LoggerConsole })
  const cluster = new Cluster({
    logger,
    socketFactory: createSocketFactory(),
    brokers: [bootstrap],
    connectionTimeout: 5000,
    requestTimeout: 20000,
    metadataMaxAge: 300000,
    allowAutoTopicCreation: false,
    offsets: new Map(),
  })
  await cluster.connect()
  await cluster.addTargetTopic(topic)
  const leader = cluster.findLeaderForPartitions(topic, [partition])
  const broker = await cluster.findBroker({ nodeId: Object.keys(leader)[0] })
  const records = []
  while (records.length < count) {
    const offset = records.length.toString()
    const answer = await broker.fetch({
      maxWaitTime: 5000,
      minBytes: 1,
      maxBytes: 1048576,
      isolationLevel: 1,
      topics: [{ topic, partitions: [{ partition, fetchOffset: offset, maxBytes: 1048576 }] }],
    })
    const { messages } = answer.responses[0].partitions[0]
    if (messages.length === 0) throw new Error('fetched nothing')
    for (const { offset, key, value, headers } of messages) {
      records.push({ offset, key: text(key), value: text(value), headers: Object.keys(headers) })
    }
  }
  await cluster.disconnect()
  return records
}

async function main() {
  const admin = kafka.admin()
  await admin.connect()
  const created = await admin.createTopics({ topics: [{ topic, numPartitions: 2 }], waitForLeaders: true })
  const producer = kafka.producer({ idempotent: true })
  await producer.connect()
  const sent = []
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
    const messages = [
      { key: 'k', value: 'v', partition: 0, headers: { h: 'x' } },
      { key: null, value: 'no key', partition: 0 },
      { key: 'no value', value: null, partition: 0 },
    ]
    const [{ baseOffset, errorCode }] = await producer.send({ topic, messages, compression, acks: -1 })
    sent.push({ baseOffset, errorCode })
  }
  const records = await fetchAll(0, 6)
  const offsets = await admin.fetchTopicOffsets(topic)
  const listed = (await admin.listTopics()).includes(topic)
  const byTime = await admin.fetchTopicOffsetsByTimestamp(topic, 0)
  await admin.deleteTopics({ topics: [topic] })
  const gone = !(await admin.listTopics()).includes(topic)
  await producer.disconnect()
  await admin.disconnect()
  console.log(JSON.stringify({ created, sent, records, offsets, byTime, listed, gone }))
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
