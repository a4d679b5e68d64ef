-- Winning bids: the highest bid of every auction, the earliest of equal ones.

CREATE OR REPLACE MATERIALIZED VIEW nexmark_q9 KEY (id) AS
SELECT a.id, max(a.item_name) AS item_name, max(a.category) AS category, max(a.seller) AS seller,
  max(a.expires) AS expires, max(struct(b.price, -unix_millis(b.date_time) AS earliest, b.bidder)) AS winner
FROM STREAM(auction) AS a
JOIN STREAM(bid) AS b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
GROUP BY a.id;
