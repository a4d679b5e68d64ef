// A kafkajs consumer that is sent behind the end of the log goes back to its beginning: it commits -2, which means that.
// Called by test_kafkajs_recovery.py with the folder of node_modules, the agent's address and a topic; prints JSON.
const [modules, bootstrap, topic] = process.argv.slice(2)
const { Kafka, logLevel } = require(`${modules}/kafkajs`)

const kafka = new Kafka({ clientId: 'compat', brokers: [bootstrap], logLevel: logLevel.NOTHING })

async function main() {
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true })
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: ['a', 'b', 'c'].map((value) => ({ value })) })
  const consumer = kafka.consumer({ groupId: `${topic}-group`, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const seen = []
  const whole = new Promise((resolve) => {
    consumer.run({
      eachMessage: async ({ message }) => {
        seen.push(message.offset)
        if (seen.length === 3) resolve()
      },
    })
  })
  consumer.seek({ topic, partition: 0, offset: '100' })
  await whole
  await consumer.disconnect()
  await admin.resetOffsets({ groupId: `${topic}-group`, topic, earliest: true })
  const [{ partitions }] = await admin.fetchOffsets({ groupId: `${topic}-group`, topics: [topic] })
  await producer.disconnect()
  await admin.disconnect()
  console.log(JSON.stringify({ seen, reset: partitions.map(({ offset }) => offset) }))
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
