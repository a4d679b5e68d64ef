-- The ten highest bids of every auction.

CREATE OR REPLACE MATERIALIZED VIEW nexmark_q19 KEY (auction) AS
SELECT auction, slice(sort_array(collect_list(struct(price, bidder, date_time, channel)), false), 1, 10) AS bids
FROM STREAM(bid)
GROUP BY auction;
