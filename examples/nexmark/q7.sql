-- Highest bid: of every ten seconds, with who made it.

CREATE OR REPLACE PIPELINE nexmark_q7 WITH (key = 'auction', dead_letters = 'none') AS
INSERT INTO nexmark_q7
WITH tops AS (
  SELECT window(date_time, '10 seconds') AS w, max(price) AS top
  FROM STREAM(bid) WATERMARK date_time DELAY OF INTERVAL 4 SECONDS
  GROUP BY window(date_time, '10 seconds')
)
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM STREAM(bid) WATERMARK date_time DELAY OF INTERVAL 4 SECONDS AS b
JOIN tops ON b.price = tops.top AND b.date_time >= tops.w.start AND b.date_time < tops.w.end;
