// A kafkajs producer commits records and offsets together, or not at all, and is replaced by another one.
// Called by test_kafkajs_transactions.py with the folder of node_modules, the agent's address and a topic; prints JSON.
const [modules, bootstrap, topic] = process.argv.slice(2)
const { Kafka, logLevel } = require(`${modules}/kafkajs`)

const kafka = new Kafka({ clientId: 'compat', brokers: [bootstrap], logLevel: logLevel.NOTHING })
const consumerGroupId = `${topic}-group`

async function begun() {
  const producer = kafka.producer({ transactionalId: topic, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  return producer
}

async function move(producer, value, offset, commits) {
  const transaction = await producer.transaction()
  await transaction.send({ topic, messages: [{ value, partition: 0 }] })
  const topics = [{ topic, partitions: [{ partition: 0, offset }] }]
  await transaction.sendOffsets({ consumerGroupId, topics })
  await (commits ? transaction.commit() : transaction.abort())
}

async function main() {
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true })
  const first = await begun()
  await move(first, 'a', '3', true)
  await move(first, 'b', '5', false)
  const second = await begun()
  await move(second, 'c', '7', true)
  const replaced = await move(first, 'd', '9', true).then(() => 'nothing', (error) => error.type)
  const [{ partitions }] = await admin.fetchOffsets({ groupId: consumerGroupId, topics: [topic] })
  const seen = []
  const consumer = kafka.consumer({ groupId: `${topic}-readers`, maxWaitTimeInMs: 100, readUncommitted: false })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const whole = new Promise((resolve) => {
    consumer.run({
      eachMessage: async ({ message }) => {
        seen.push(message.value.toString())
        if (seen.length === 2) resolve()
      },
    })
  })
  await whole
  for (const each of [consumer, first, second, admin]) await each.disconnect()
  console.log(JSON.stringify({ seen, replaced, committed: partitions.map(({ offset }) => offset) }))
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
