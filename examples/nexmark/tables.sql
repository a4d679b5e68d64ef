-- The three topics of `generate.py` as tables. Event time is `date_time`.

CREATE OR REPLACE TABLE person (
  id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING,
  date_time TIMESTAMP, extra STRING
) WITH (connector = 'topic', topic = 'nexmark-person', format = 'json');

CREATE OR REPLACE TABLE auction (
  id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT,
  date_time TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING
) WITH (connector = 'topic', topic = 'nexmark-auction', format = 'json');

CREATE OR REPLACE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP, extra STRING
) WITH (connector = 'topic', topic = 'nexmark-bid', format = 'json');
