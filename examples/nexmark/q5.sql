-- Hot items: which auctions had most bids in the last ten seconds, every two seconds?

CREATE OR REPLACE PIPELINE nexmark_q5 WITH (key = 'auction', dead_letters = 'none') AS
INSERT INTO nexmark_q5
WITH counts AS (
  SELECT auction, count(*) AS num, window(date_time, '10 seconds', '2 seconds') AS w
  FROM STREAM(bid) WATERMARK date_time DELAY OF INTERVAL 4 SECONDS
  GROUP BY auction, window(date_time, '10 seconds', '2 seconds')
), tops AS (
  SELECT w, max(num) AS top, collect_list(struct(auction, num)) AS auctions
  FROM counts
  GROUP BY w
)
SELECT w.start AS start_time, inline(filter(auctions, a -> a.num = top))
FROM tops;
