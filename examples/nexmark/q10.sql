-- Log to files: every bid with its day and minute. `files` would write Parquet; a topic is enough to compare.

CREATE OR REPLACE PIPELINE nexmark_q10 WITH (key = 'auction', dead_letters = 'none') AS
INSERT INTO nexmark_q10
SELECT auction, bidder, price, date_time, extra,
  date_format(date_time, 'yyyy-MM-dd') AS dt, date_format(date_time, 'HH:mm') AS hm
FROM STREAM(bid);
