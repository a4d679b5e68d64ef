-- User sessions: how many bids did a user make before ten quiet seconds?

CREATE OR REPLACE PIPELINE nexmark_q11 WITH (key = 'bidder', dead_letters = 'none') AS
INSERT INTO nexmark_q11
SELECT bidder, count(*) AS bids, session_window(date_time, '10 seconds').start AS start_time,
  session_window(date_time, '10 seconds').end AS end_time
FROM STREAM(bid) WATERMARK date_time DELAY OF INTERVAL 4 SECONDS
GROUP BY bidder, session_window(date_time, '10 seconds');
