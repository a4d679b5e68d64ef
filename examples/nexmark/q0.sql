-- Passing on: what does a pipeline cost that changes nothing?

CREATE OR REPLACE PIPELINE nexmark_q0 WITH (key = 'auction', dead_letters = 'none') AS
INSERT INTO nexmark_q0
SELECT auction, bidder, price, date_time, extra
FROM STREAM(bid);
