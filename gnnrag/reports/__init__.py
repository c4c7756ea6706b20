"""From a file of rows to a table: each row is an evaluation, shown beside published figures."""
