-- Calculation: prices in euros within limits, the time of day, letters counted.

CREATE OR REPLACE PIPELINE nexmark_q14 WITH (key = 'auction', dead_letters = 'none') AS
INSERT INTO nexmark_q14
SELECT auction, bidder, 0.908 * price AS price,
  CASE
    WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
    WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
    ELSE 'otherTime'
  END AS bid_time_type,
  date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM STREAM(bid)
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
