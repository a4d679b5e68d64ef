-- Average selling price by seller: of the last ten auctions that a seller closed. The inner view has every auction's
-- highest valid bid; the outer one is computed from its rows.

CREATE OR REPLACE MATERIALIZED VIEW nexmark_q6_final KEY (id, seller, expires) AS
SELECT a.id, a.seller, a.expires, max(b.price) AS final
FROM STREAM(auction) AS a
JOIN STREAM(bid) AS b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
GROUP BY a.id, a.seller, a.expires;

CREATE OR REPLACE MATERIALIZED VIEW nexmark_q6 KEY (id) AS
SELECT id, seller, avg(final) OVER (
  PARTITION BY seller ORDER BY expires, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW
) AS average
FROM nexmark_q6_final;
