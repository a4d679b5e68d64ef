-- Bidding statistics of a day. Spark's streams don't know count(DISTINCT …); sets are as exact.

CREATE OR REPLACE MATERIALIZED VIEW nexmark_q15 KEY (day) AS
SELECT date_format(date_time, 'yyyy-MM-dd') AS day,
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
GROUP BY date_format(date_time, 'yyyy-MM-dd');
