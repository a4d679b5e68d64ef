-- New users: who opened an auction in the ten seconds in which they joined?

CREATE OR REPLACE PIPELINE nexmark_q8 WITH (key = 'id', dead_letters = 'none') AS
INSERT INTO nexmark_q8
SELECT p.id, p.name, p.w.start AS start_time
FROM (SELECT DISTINCT id, name, window(date_time, '10 seconds') AS w FROM STREAM(person) WATERMARK date_time DELAY OF INTERVAL 4 SECONDS) AS p
JOIN (SELECT DISTINCT seller, window(date_time, '10 seconds') AS w FROM STREAM(auction) WATERMARK date_time DELAY OF INTERVAL 4 SECONDS) AS a
ON p.id = a.seller AND p.w = a.w;
