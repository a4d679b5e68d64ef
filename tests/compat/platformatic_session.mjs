// One login with @platformatic/kafka over TLS: produce a record, read it back, print it.
// node platformatic_session.mjs MODULE BOOTSTRAP CA MECHANISM USER SECRET TOPIC
import { readFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'

const [module, bootstrap, ca, mechanism, user, secret, topic] = process.argv.slice(2)
const { Producer, Consumer, stringSerializers, stringDeserializers, ListOffsetTimestamps } = await import(pathToFileURL(module))

const login = mechanism === 'OAUTHBEARER' ? { mechanism, token: secret } : { mechanism, username: user, password: secret }
const common = {
  bootstrapBrokers: [bootstrap],
  tls: { ca: readFileSync(ca) },
  sasl: login,
  retries: 5
}
const producer = new Producer({ clientId: 'p', ...common, serializers: stringSerializers, autocreateTopics: true })
await producer.send({ messages: [{ topic, key: 'k', value: 'value' }] })
await producer.close()

const consumer = new Consumer({ clientId: 'c', groupId: `g-${topic}`, ...common, deserializers: stringDeserializers })
const stream = await consumer.consume({ topics: [topic], mode: 'earliest', autocommit: true, sessionTimeout: 10000, heartbeatInterval: 500 })
for await (const message of stream) {
  console.log(message.value)
  break
}
await consumer.close(true)
process.exit(0)
