-- Average price for a category: of the highest valid bid of every auction. The inner view is kept up to date by the
-- streams; the outer one is computed from its rows.

CREATE OR REPLACE MATERIALIZED VIEW nexmark_q4_final KEY (id, category) AS
SELECT a.id, a.category, max(b.price) AS final
FROM STREAM(auction) AS a
JOIN STREAM(bid) AS b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
GROUP BY a.id, a.category;

CREATE OR REPLACE MATERIALIZED VIEW nexmark_q4 KEY (category) AS
SELECT category, avg(final) AS average
FROM nexmark_q4_final
GROUP BY category;
