-- Local items: who sells in OR, ID or CA, and what, in category 10? A join of two streams that never forgets.

CREATE OR REPLACE PIPELINE nexmark_q3 WITH (key = 'id', dead_letters = 'none') AS
INSERT INTO nexmark_q3
SELECT p.name, p.city, p.state, a.id
FROM STREAM(auction) AS a
JOIN STREAM(person) AS p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');
