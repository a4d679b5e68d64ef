"""Dev: a whole cluster on one machine, as child processes on loopback: `streamhouse dev cluster`.

Owns        `children` (processes that end with us), `ports` (free ones), `postgres` and `s3` (real servers),
            `agents` (how an agent is started), `cluster` (all of them: in order up, watched, in reverse order down)
Leaves      flags and screens to `cli`; what agents do to `agent`, which is only ever started, never imported

A room of its own because nothing that serves records may start processes, and tests, benchmarks and people need the
same servers.
"""
