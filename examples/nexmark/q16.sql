-- Statistics of a channel and day.

CREATE OR REPLACE MATERIALIZED VIEW nexmark_q16 KEY (channel, day) AS
SELECT channel, date_format(date_time, 'yyyy-MM-dd') AS day, max(date_format(date_time, 'HH:mm')) AS minute,
  count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  cardinality(collect_set(bidder)) AS total_bidders,
  cardinality(collect_set(bidder) FILTER (WHERE price < 10000)) AS rank1_bidders,
  cardinality(collect_set(bidder) FILTER (WHERE price >= 10000 AND price < 1000000)) AS rank2_bidders,
  cardinality(collect_set(bidder) FILTER (WHERE price >= 1000000)) AS rank3_bidders,
  cardinality(collect_set(auction)) AS total_auctions,
  cardinality(collect_set(auction) FILTER (WHERE price < 10000)) AS rank1_auctions,
  cardinality(collect_set(auction) FILTER (WHERE price >= 10000 AND price < 1000000)) AS rank2_auctions,
  cardinality(collect_set(auction) FILTER (WHERE price >= 1000000)) AS rank3_auctions
FROM STREAM(bid)
GROUP BY channel, date_format(date_time, 'yyyy-MM-dd');
