-- Currency: prices in euros.

CREATE OR REPLACE PIPELINE nexmark_q1 WITH (key = 'auction', dead_letters = 'none') AS
INSERT INTO nexmark_q1
SELECT auction, bidder, 0.908 * price AS price, date_time, extra
FROM STREAM(bid);
