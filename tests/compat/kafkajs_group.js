// Two kafkajs consumers share a topic; one goes, the other reads on; a third finds what was committed.
// Called by test_groups_kafkajs.py with the folder of node_modules, the agent's address and a topic; prints JSON.
const [modules, bootstrap, topic] = process.argv.slice(2)
const { Kafka, logLevel } = require(`${modules}/kafkajs`)

const COUNT = 300
const kafka = new Kafka({ clientId: 'compat', brokers: [bootstrap], logLevel: logLevel.NOTHING })
const groupId = `${topic}-group`

const until = async (condition) => {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 20))
}

async function start(seen) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 10000, heartbeatInterval: 500, maxWaitTimeInMs: 200 })
  const member = { consumer, assigned: 0 }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.assigned = (payload.memberAssignment[topic] || []).length
  })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommitThreshold: 1,
    eachMessage: async ({ message }) => void seen.push(message.value.toString()),
  })
  return member
}

async function send(producer, first) {
  const messages = Array.from({ length: COUNT }, (_, n) => ({ key: `${first + n}`, value: `${first + n}` }))
  await producer.send({ topic, messages, acks: -1 })
}

async function main() {
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 4 }], waitForLeaders: true })
  const producer = kafka.producer()
  await producer.connect()
  const seen = []
  const [first, second] = [await start(seen), await start(seen)]
  await until(() => first.assigned === 2 && second.assigned === 2)
  await send(producer, 0)
  await until(() => new Set(seen).size === COUNT)
  await second.consumer.disconnect()
  await until(() => first.assigned === 4)
  await send(producer, COUNT)
  await until(() => new Set(seen).size === 2 * COUNT)
  const described = (await admin.describeGroups([groupId])).groups[0]
  await first.consumer.disconnect()
  const listed = (await admin.listGroups()).groups.filter((group) => group.groupId === groupId)
  const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] })
  const ends = await admin.fetchTopicOffsets(topic)
  await admin.resetOffsets({ groupId, topic, earliest: true })
  const again = []
  const third = await start(again)
  await until(() => new Set(again).size === 2 * COUNT)
  await third.consumer.disconnect()
  await admin.deleteGroups([groupId])
  const left = (await admin.listGroups()).groups.filter((group) => group.groupId === groupId).length
  await producer.disconnect()
  await admin.disconnect()
  const sum = (offsets) => offsets.reduce((total, { offset }) => total + Number(offset), 0)
  console.log(
    JSON.stringify({
      read: new Set(seen).size,
      state: described.state,
      members: described.members.length,
      type: listed[0].protocolType,
      committed: sum(partitions),
      ends: sum(ends),
      left,
    })
  )
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
