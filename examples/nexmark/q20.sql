-- Bids with the auctions that they are on, in category 10.

CREATE OR REPLACE PIPELINE nexmark_q20 WITH (key = 'auction', dead_letters = 'none') AS
INSERT INTO nexmark_q20
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, a.item_name, a.initial_bid, a.reserve,
  a.date_time AS auction_date_time, a.expires, a.seller, a.category
FROM STREAM(bid) AS b
JOIN STREAM(auction) AS a ON b.auction = a.id
WHERE a.category = 10;
