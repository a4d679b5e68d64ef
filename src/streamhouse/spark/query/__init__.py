"""SQL: names become tables, text becomes data frames, mistakes get a line and a column.

Data path   a statement -> catalogue (names) -> **binding** (views of a session) -> Spark
Owns        what a name means, inferred columns, problems with positions, the worker that stays warm
Leaves      places to `connectors`, what never ends to `pipelines`, our own statements to `format.statements`
"""
