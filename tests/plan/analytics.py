"""Ordinary questions to a database, by dialect: every one of them has to pass the guard and to run on the real server."""

from __future__ import annotations

_EVERYWHERE = (
    "SELECT count(*), count(DISTINCT a), sum(a), avg(a), min(a), max(a) FROM (SELECT 1 AS a UNION ALL SELECT 2) AS t",
    (
        "SELECT a, row_number() OVER (ORDER BY a), rank() OVER (ORDER BY a), dense_rank() OVER (ORDER BY a), lag(a) OVER (ORDER BY a), "
        "lead(a, 1) OVER (ORDER BY a), first_value(a) OVER (ORDER BY a), ntile(2) OVER (ORDER BY a), "
        "sum(a) OVER (ORDER BY a ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM (SELECT 1 AS a UNION ALL SELECT 2) AS t"
    ),
    "SELECT lower('A'), upper('a'), trim(' a '), ltrim(' a'), rtrim('a '), replace('a', 'a', 'b'), substr('abc', 2, 1), length('abc')",
    "SELECT coalesce(NULL, 1), nullif(1, 2), CASE WHEN 1 = 1 THEN 'a' ELSE 'b' END, CAST('1' AS INTEGER), abs(-1), round(1.26, 1)",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT i FROM n",
    "SELECT current_date, current_timestamp",
    "SELECT a, count(*) FROM (SELECT 1 AS a UNION ALL SELECT 2) AS t GROUP BY a HAVING count(*) > 0 ORDER BY 1",
    "SELECT 1 WHERE EXISTS (SELECT 1) AND 1 IN (SELECT 1)",
)

ANALYTICS: dict[str, tuple[str, ...]] = {
    "postgres": (
        *_EVERYWHERE,
        "SELECT date_trunc('month', now()), extract(dow FROM now()), age(now()), to_char(now(), 'YYYY-MM'), date_part('year', now())",
        "SELECT now() - interval '1 day', make_date(2026, 1, 2), to_timestamp(0), to_date('2026-01-02', 'YYYY-MM-DD'), clock_timestamp()",
        "SELECT timezone('UTC', now()), now() AT TIME ZONE 'UTC', date_bin('15 minutes', now(), timestamptz '2026-01-01 00:00:00+00')",
        "SELECT d::date FROM generate_series(date '2026-01-01', date '2026-01-03', interval '1 day') AS d",
        ("SELECT string_agg(a, ',' ORDER BY a), array_agg(a), json_agg(a), jsonb_agg(a), jsonb_object_agg(a, 1), bool_and(true) "
        "FROM unnest(ARRAY['x', 'y']) AS a"),
        ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a), mode() WITHIN GROUP (ORDER BY a), stddev(a), variance(a), corr(a, a), "
        "count(*) FILTER (WHERE a > 1) FROM generate_series(1, 4) AS a"),
        ("SELECT split_part('a,b', ',', 1), regexp_replace('aXa', 'x', 'y', 'i'), regexp_match('ab', 'a'), regexp_split_to_array('a,b', ','), "
        "concat_ws('-', 'a', 'b'), left('abc', 1), lpad('a', 3, '0'), initcap('ab'), translate('a', 'a', 'b'), strpos('ab', 'b'), md5('a'), "
        "format('%s', 'a'), quote_ident('a'), string_to_array('a,b', ','), encode('a'::bytea, 'hex'), octet_length('a')"),
        ("SELECT '{\"a\": {\"b\": 1}}'::jsonb #>> '{a,b}', jsonb_build_object('a', 1), to_jsonb(1), jsonb_typeof('1'::jsonb), "
        "jsonb_array_length('[1]'::jsonb), jsonb_set('{}'::jsonb, '{a}', '1'), jsonb_path_query_first('[1]'::jsonb, '$[0]'), row_to_json(t) "
        "FROM (SELECT 1 AS a) AS t"),
        "SELECT key, value FROM jsonb_each('{\"a\": 1}'::jsonb)", "SELECT * FROM jsonb_to_recordset('[{\"a\": 1}]'::jsonb) AS t(a int)",
        "SELECT e FROM (SELECT '[1]'::jsonb AS j) AS t CROSS JOIN LATERAL jsonb_array_elements(t.j) AS e",
        ("SELECT array_length(ARRAY[1], 1), cardinality(ARRAY[1]), array_to_string(ARRAY['a'], ','), 1 = ANY(ARRAY[1]), unnest(ARRAY[1]), "
        "array_position(ARRAY[1], 1), array_remove(ARRAY[1], 1), array_upper(ARRAY[1], 1), ARRAY[1] || 2"),
        ("SELECT ceil(1.2), floor(1.2), mod(7, 3), power(2, 3), sqrt(4), ln(1), log(10), exp(0), greatest(1, 2), least(1, 2), trunc(1.5), "
        "sign(-1), random(), width_bucket(1, 0, 2, 2), gcd(4, 6), div(7, 2), num_nulls(NULL)"),
        "SELECT to_tsvector('english', 'a cat') @@ plainto_tsquery('english', 'cat'), ts_rank(to_tsvector('cat'), to_tsquery('cat'))",
        "SELECT daterange('2026-01-01', '2026-02-01') @> date '2026-01-02', isempty(int4range(1, 1)), lower(int4range(1, 2))",
        "SELECT relname, pg_size_pretty(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r'",
        "SELECT table_schema, table_name FROM information_schema.tables", "SELECT pg_catalog.lower('A'), pg_typeof(1), version()",
        "SELECT DISTINCT ON (a) a FROM generate_series(1, 2) AS a ORDER BY a", "SELECT a FROM generate_series(1, 3) AS a FETCH FIRST 2 ROWS ONLY",
        "SELECT a, grouping(a), sum(a) FROM generate_series(1, 2) AS a GROUP BY ROLLUP (a)", "SELECT current_user, current_database()",
        "SELECT 'a' <> ALL(ARRAY['b']), 1 > SOME(SELECT 0), 1 = ANY(VALUES (1)), ARRAY(SELECT 1), ROW(1, 2) = (1, 2)",
        "SELECT a, sum(b) FROM (VALUES (1, 2), (1, 3)) AS t(a, b) GROUP BY GROUPING SETS ((a), ())",
        "SELECT a, b, count(*) FROM (VALUES (1, 2), (1, 3)) AS t(a, b) GROUP BY CUBE (a, b)",
        "SELECT 'a' SIMILAR TO 'a', NULL IS DISTINCT FROM 1, 'a' COLLATE \"C\", 5 # 3, 'abc' LIKE ANY(ARRAY['a%'])",
        "SELECT overlay('abc' PLACING 'x' FROM 2), position('b' IN 'abc'), substring('abc' FROM 2 FOR 1), trim(BOTH 'x' FROM 'xax')",
        "SELECT (date '2026-01-01', date '2026-02-01') OVERLAPS (date '2026-01-15', date '2026-03-01')",

    ),
    "duckdb": (
        *_EVERYWHERE,
        ("SELECT date_trunc('month', now()), date_diff('day', DATE '2026-01-01', DATE '2026-01-03'), strftime(DATE '2026-01-02', '%Y'), "
        "strptime('2026', '%Y'), epoch(now()), dayname(DATE '2026-01-01'), last_day(DATE '2026-01-01'), time_bucket(INTERVAL 1 DAY, now()), "
        "make_date(2026, 1, 2), today(), isodow(DATE '2026-01-01'), date_part('year', now()), age(now(), now())"),
        "SELECT * FROM generate_series(1, 3)", "SELECT * FROM range(3)", "SELECT unnest([1, 2])", "SELECT 'abc'.upper()",
        ("SELECT list(a), median(a), quantile_cont(a, 0.5), approx_count_distinct(a), arg_max(a, a), string_agg(a, ','), histogram(a), "
        "mode(a), stddev(a), kurtosis(a), bool_and(true), any_value(a), count(*) FILTER (WHERE a > 1) FROM range(4) AS t(a)"),
        ("SELECT list_sum([1, 2]), list_sort([2, 1]), list_contains([1], 1), len([1]), list_filter([1, 2], x -> x > 1), [x * 2 FOR x IN [1]], "
        "list_transform([1], x -> x + 1), array_slice([1, 2], 1, 1), list_distinct([1, 1]), flatten([[1]]), list_aggregate([1], 'sum')"),
        "SELECT struct_pack(a := 1), {'a': 1}.a, map {'a': 1}, map_keys(map {'a': 1}), map_values(map {'a': 1}), struct_extract({'a': 1}, 'a')",
        ("SELECT json_extract('{\"a\": 1}', '$.a'), json_extract_string('{\"a\": 1}', '$.a'), to_json(1), json_array_length('[1]'), "
        "json_object('a', 1), json_keys('{}'), json_type('1'), json_valid('1')"),
        ("SELECT regexp_matches('a', 'a'), regexp_extract('a', 'a'), regexp_replace('a', 'a', 'b'), string_split('a,b', ','), printf('%d', 1), "
        "levenshtein('a', 'b'), strip_accents('a'), concat_ws('-', 'a', 'b'), left('abc', 1), lpad('a', 3, '0'), starts_with('a', 'a'), "
        "md5('a'), sha256('a'), hash('a'), format('{}', 'a'), url_encode('a'), split_part('a,b', ',', 1)"),
        ("SELECT ceil(1.2), floor(1.2), power(2, 3), sqrt(4), ln(1), log10(10), log2(2), greatest(1, 2), least(1, 2), sign(-1), random(), gcd(4, 6), "
        "isnan(1.0), round_even(1.5, 0), even(1), fmod(5, 2), factorial(3), pi(), 7 // 2"),
        "FROM range(3) SELECT *", "SELECT * EXCLUDE (a) FROM (SELECT 1 AS a, 2 AS b)", "SELECT COLUMNS('a.*') FROM (SELECT 1 AS a1)",
        "SELECT * FROM (PIVOT (SELECT 'x' AS k, 1 AS v) ON k IN ('x') USING sum(v))", "SELECT a FROM range(9) AS t(a) QUALIFY row_number() OVER () < 3",
        "SELECT table_name FROM information_schema.tables", "SELECT table_name FROM duckdb_tables",
    ),
    "mysql": (
        *(sql.replace("AS INTEGER", "AS SIGNED") for sql in _EVERYWHERE),
        ("SELECT date_format(now(), '%Y-%m'), date_add(now(), INTERVAL 1 DAY), datediff(now(), now()), timestampdiff(HOUR, now(), now()), "
        "unix_timestamp(), from_unixtime(0), str_to_date('2026', '%Y'), year(now()), yearweek(now()), weekday(now()), last_day(now()), "
        "dayofweek(now()), curdate(), convert_tz(now(), '+00:00', '+01:00'), makedate(2026, 1), quarter(now()), utc_timestamp()"),
        "SELECT group_concat(a ORDER BY a SEPARATOR '-'), std(a), variance(a), bit_or(a), json_arrayagg(a) FROM (SELECT 1 AS a) AS t",
        ("SELECT concat('a', 'b'), concat_ws('-', 'a', 'b'), substring_index('a,b', ',', 1), locate('a', 'ba'), find_in_set('a', 'a,b'), "
        "field('a', 'a'), lpad('a', 3, '0'), left('abc', 1), mid('abc', 1, 1), reverse('ab'), 'a' REGEXP 'a', regexp_replace('a', 'a', 'b'), "
        "format(1, 2), hex('a'), md5('a'), sha2('a', 256), char_length('a'), elt(1, 'a'), ifnull(NULL, 1), if(1, 2, 3), strcmp('a', 'b')"),
        ("SELECT json_extract('{\"a\": 1}', '$.a'), json_unquote('\"a\"'), json_object('a', 1), json_length('[1]'), json_contains('[1]', '1'), "
        "json_keys('{}'), json_valid('1'), json_set('{}', '$.a', 1)"),
        "SELECT t.a FROM JSON_TABLE('[1]', '$[*]' COLUMNS(a INT PATH '$')) AS t",
        ("SELECT ceil(1.2), floor(1.2), mod(7, 3), power(2, 3), sqrt(4), ln(1), log10(10), log2(2), truncate(1.5, 0), greatest(1, 2), rand(), crc32('a'), "
        "conv('a', 16, 10), inet_aton('1.2.3.4'), bin(2), 7 DIV 2"),
        "SELECT table_name FROM information_schema.tables", "SELECT CONVERT('a' USING utf8mb4), CAST('1' AS DECIMAL(5, 2)), CONVERT('1', SIGNED), 'a' COLLATE utf8mb4_bin, BINARY 'a'",
        "SELECT database(), current_user(), version()",
    ),
    "sqlite": (
        *_EVERYWHERE,
        "SELECT date('2026-01-02', '+1 month'), strftime('%Y-%m', '2026-01-02'), julianday('2026-01-02'), datetime('now'), time('now'), unixepoch()",
        ("SELECT json_extract('{\"a\": 1}', '$.a'), '{\"a\": 1}' ->> '$.a', json_object('a', 1), json_array(1), json_array_length('[1]'), "
        "json_set('{}', '$.a', 1), json_type('1'), json_valid('1'), json_patch('{}', '{}'), json_quote('a')"),
        "SELECT value FROM json_each('[1, 2]')", "SELECT value FROM json_tree('[1, 2]')", ("SELECT json_group_array(a), group_concat(a, '-'), total(a) "
        "FROM (SELECT 1 AS a) AS t"), ("SELECT instr('ab', 'b'), printf('%.2f', 1.5), quote('a'), typeof(1), ifnull(NULL, 1), iif(1, 2, 3), hex('a'), "
        "unicode('a'), char(65), 'a' || 'b', 'a' LIKE 'A', 'a' GLOB 'a*', glob('a*', 'a'), max(1, 2), min(1, 2), likely(1)"),
        "SELECT ceil(1.2), floor(1.2), power(2, 3), sqrt(4), ln(1), log10(10), log2(2), mod(7, 3), exp(0), pi(), trunc(1.5), random(), sign(-1)",
        "SELECT name FROM sqlite_master",
    ),
}  # fmt: skip
