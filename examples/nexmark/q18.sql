-- The last bid of every bidder on every auction.

CREATE OR REPLACE MATERIALIZED VIEW nexmark_q18 KEY (bidder, auction) AS
SELECT bidder, auction, max(struct(date_time, price, channel, url, extra)) AS last
FROM STREAM(bid)
GROUP BY bidder, auction;
