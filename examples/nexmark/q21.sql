-- A number for every channel: known ones, else out of the URL.

CREATE OR REPLACE PIPELINE nexmark_q21 WITH (key = 'auction', dead_letters = 'none') AS
INSERT INTO nexmark_q21
SELECT auction, bidder, price, channel,
  CASE lower(channel)
    WHEN 'apple' THEN '0'
    WHEN 'google' THEN '1'
    WHEN 'facebook' THEN '2'
    WHEN 'baidu' THEN '3'
    ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)
  END AS channel_id
FROM STREAM(bid)
WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu');
