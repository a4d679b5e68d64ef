-- Selection: bids on some auctions.

CREATE OR REPLACE PIPELINE nexmark_q2 WITH (key = 'auction', dead_letters = 'none') AS
INSERT INTO nexmark_q2
SELECT auction, price
FROM STREAM(bid)
WHERE auction % 123 = 0;
