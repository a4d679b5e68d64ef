"""The Python client: what users import to produce, consume and administer.

Data path   a program or the command line -> **client** -> an agent's Kafka and HTTP listeners
Owns        typed calls and errors named by what the caller should do
Leaves      the Kafka protocol to aiokafka for now, HTTP to httpx

Nothing is imported here, so that one part doesn't cost the start-up time of the others:
`from streamhouse.client.producer import Producer`, and likewise `Consumer`, `Admin` and `Http`.
"""
