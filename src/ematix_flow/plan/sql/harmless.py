"""What queries of strangers may call and read besides the tables of the user: functions and system tables, by dialect.

Functions that the parser knows as SQL need no entry. The lists hold what only computes from its arguments or describes
tables; nothing here executes SQL in a text, reaches files, servers, sessions or settings, waits, locks or counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import exp

_POSTGRES = """
    abbrev acosd age area array_cat array_dims array_fill array_lower array_ndims array_positions array_replace array_sample
    array_shuffle array_to_json array_upper asind atan2d atand bit_count bound_box box broadcast cardinality center cidr circle
    clock_timestamp col_description convert_from convert_to cosd cotd crc32 crc32c date_add date_subtract datemultirange daterange
    diagonal diameter difference digest dmetaphone enum_first enum_last enum_range erf every family float4 float8 format_type gcd
    generate_subscripts get_byte has_column_privilege has_schema_privilege has_table_privilege hashtext hashtextextended height hmac
    hostmask hstore hstore_to_json hstore_to_jsonb in_range inet_merge inet_same_family int2 int4 int4multirange int4range int8
    int8multirange int8range is_normalized isclosed isempty isfinite isopen json_array_elements json_array_elements_text
    json_array_length json_build_array json_build_object json_each json_each_text json_exists json_object_agg_strict
    json_object_keys json_populate_record json_populate_recordset json_query json_scalar json_serialize json_to_record
    json_to_recordset json_to_tsvector json_typeof json_value jsonb_agg jsonb_agg_strict jsonb_array_elements
    jsonb_array_elements_text jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each jsonb_each_text
    jsonb_extract_path jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_keys jsonb_path_exists jsonb_path_exists_tz
    jsonb_path_match jsonb_path_match_tz jsonb_path_query jsonb_path_query_array jsonb_path_query_array_tz
    jsonb_path_query_first jsonb_path_query_first_tz jsonb_path_query_tz jsonb_populate_record jsonb_populate_recordset
    jsonb_pretty jsonb_set jsonb_set_lax jsonb_strip_nulls jsonb_to_record jsonb_to_recordset jsonb_to_tsvector jsonb_typeof lca
    lcm levenshtein_less_equal line lower_inc lower_inf lseg make_date make_time make_timestamptz masklen metaphone min_scale
    money multirange netmask network nlevel npoints num_nonnulls num_nulls numeric nummultirange numnode numrange obj_description
    octet_length overlay parse_ident path pg_column_size pg_database_size pg_get_constraintdef pg_get_expr pg_get_indexdef
    pg_get_serial_sequence pg_get_userbyid pg_get_viewdef pg_indexes_size pg_relation_size pg_size_bytes pg_size_pretty
    pg_table_is_visible pg_table_size pg_total_relation_size pg_typeof phraseto_tsquery plainto_tsquery point polygon
    querytree quote_ident quote_literal quote_nullable radius random_normal range_agg range_intersect_agg range_merge
    regexp_match regexp_matches regexp_split_to_array regexp_split_to_table row row_to_json scale set_bit set_byte set_masklen setweight
    sha224 show_trgm similarity sind slope st_area st_asgeojson st_astext st_buffer st_centroid st_contains st_covers
    st_distance st_dwithin st_geogfromtext st_geohash st_geomfromgeojson st_geomfromtext st_intersection st_intersects
    st_length st_makeenvelope st_makepoint st_perimeter st_setsrid st_simplify st_srid st_transform st_union st_within st_x st_y
    statement_timestamp strict_word_similarity string_to_table strip subltree subpath tand text text2ltree time_bucket
    timeofday timestamptz timetz timezone to_ascii to_bin to_json to_jsonb to_oct to_regclass to_regnamespace to_regtype to_tsquery to_tsvector
    transaction_timestamp translate trim_array trim_scale ts_delete ts_filter ts_headline ts_rank ts_rank_cd tsmultirange tsrange
    tstzmultirange tstzrange tsvector_to_array unaccent unistr upper_inc upper_inf uuid_extract_timestamp uuid_extract_version
    uuid_generate_v4 uuidv4 uuidv7 varchar websearch_to_tsquery width word_similarity xmlagg xmlcomment xmlconcat xmlexists xmlforest
    xml_is_well_formed xpath xpath_exists bool bit bpchar macaddr macaddr8 textlen
"""
_MYSQL = """
    adddate addtime aes_decrypt aes_encrypt any_value bin bin_to_uuid bit_count charset coercibility compress conv convert_tz crc32
    crc32c curdate curtime date_format elt export_set extractvalue field find_in_set format_bytes from_days from_unixtime ifnull
    inet6_aton inet6_ntoa inet_aton inet_ntoa insert interval is_ipv4 is_ipv4_compat is_ipv4_mapped is_ipv6 is_uuid isnull json_array
    json_array_append json_array_insert json_arrayagg json_compact json_contains json_contains_path json_depth json_detailed
    json_equals json_exists json_extract json_insert json_keys json_length json_loose json_merge json_merge_patch
    json_merge_preserve json_normalize json_object json_objectagg json_overlaps json_pretty json_query json_quote json_remove
    json_replace json_schema_valid json_search json_set json_type json_unquote json_valid json_value lcase locate log2 make_set
    makedate maketime microsecond mid natural_sort_key nvl oct octet_length ord period_add period_diff quote sec_to_time sformat
    st_area st_asgeojson st_astext st_buffer st_centroid st_contains st_distance st_distance_sphere st_geomfromgeojson
    st_geomfromtext st_intersects st_latitude st_length st_longitude st_srid st_within st_x st_y std strcmp subdate subtime
    sysdate time_format time_to_sec timediff timestampadd to_char to_days to_seconds truncate ucase uncompress
    uncompressed_length unix_timestamp updatexml utc_date utc_time utc_timestamp uuid_to_bin values weekday weekofyear yearweek
    now user system_user
"""
_SQLITE = """
    bm25 char changes concat concat_ws datetime format glob group_concat highlight ifnull iif instr json json_array json_array_length
    json_each json_error_position json_extract json_group_array json_group_object json_insert json_object json_patch json_pretty json_quote
    json_remove json_replace json_set json_tree json_type json_valid jsonb jsonb_array jsonb_extract jsonb_group_array
    jsonb_group_object jsonb_insert jsonb_object jsonb_patch jsonb_remove jsonb_replace jsonb_set julianday like likelihood likely
    log2 match octet_length offsets pi printf quote snippet sqlite_version string_agg strftime timediff total typeof unhex unicode
    unistr unixepoch unlikely
"""
_DUCKDB = """
    add age ago aggregate alias apply approx_count_distinct approx_top_k arbitrary arg_max_null arg_min_null argmax argmin array_aggr
    array_aggregate array_apply array_cosine_distance array_cosine_similarity array_cross_product array_distance
    array_dot_product array_extract array_filter array_grade_up array_has array_has_all array_has_any array_indexof
    array_inner_product array_negative_dot_product array_negative_inner_product array_pop_back array_pop_front array_push_back
    array_push_front array_reduce array_resize array_reverse_sort array_select array_slice array_to_json array_transform
    array_unique array_value array_where array_zip bar base64 bin bit_count bit_position bitstring bitstring_agg cardinality
    century col_description combine constant_or_null count_star countif damerau_levenshtein date_sub datepart datesub datetrunc
    dayofmonth dayofweek dayofyear days_in_month decade divide editdist3 element_at entropy enum_code enum_first enum_last enum_range
    enum_range_boundary epoch epoch_ms epoch_ns epoch_us equi_width_bins era error even favg fdiv finalize fmod format_bytes
    formatreadabledecimalsize formatreadablesize from_binary from_hex from_json from_json_strict fsum gamma gcd generate_subscripts
    geomean geometric_mean get_current_time get_current_timestamp get_type grade_up greatest_common_divisor hamming hash histogram
    histogram_exact instr isfinite isinf isnan isodow isoyear jaccard jaro_similarity jaro_winkler_similarity json json_array
    json_array_length json_contains json_deep_merge json_each json_exists json_extract_path json_extract_path_text json_extract_string
    json_group_array json_group_object json_group_structure json_insert json_keys json_merge_patch json_object json_pretty
    json_quote json_remove json_replace json_set json_structure json_transform json_transform_strict json_tree json_type json_valid
    json_value julian kahan_sum kurtosis_pop lcase lcm least_common_multiple left_grapheme len length_grapheme lgamma list
    list_aggr list_aggregate list_any_value list_append list_apply list_approx_count_distinct list_avg list_bit_and list_bit_or
    list_bit_xor list_bool_and list_bool_or list_cat list_concat list_contains list_cosine_distance list_cosine_similarity
    list_count list_distance list_distinct list_dot_product list_element list_entropy list_extract list_filter list_first
    list_grade_up list_has list_has_all list_has_any list_histogram list_indexof list_inner_product list_intersect
    list_kurtosis list_last list_mad list_max list_median list_min list_mode list_negative_inner_product list_pack list_position
    list_prepend list_product list_reduce list_resize list_reverse list_reverse_sort list_select list_sem list_skewness list_slice
    list_sort list_stddev_pop list_stddev_samp list_string_agg list_sum list_transform list_unique list_value list_var_pop
    list_var_samp list_where list_zip listagg log2 mad make_date make_time make_timestamp_ms make_timestamp_ns make_timestamptz
    map_concat map_contains map_contains_entry map_contains_value map_entries map_extract map_extract_value map_values md5_number
    mean microsecond millennium millisecond mismatches multiply nanosecond nextafter nfc_normalize octet_length ord
    parse_dirname parse_dirpath parse_filename parse_formatted_bytes parse_path pg_size_pretty pg_typeof prefix printf product
    quantile_cont quantile_disc range regexp_escape regexp_matches regexp_split_to_array regexp_split_to_table repeat
    reservoir_quantile right_grapheme round_even roundbankers row row_to_json sem set_bit signbit str_split str_split_regex
    strftime string_split string_split_regex strip_accents strlen strptime struct_concat struct_contains struct_extract_at
    struct_has struct_indexof struct_insert struct_keys struct_pack struct_position struct_update struct_values
    substring_grapheme subtract suffix sum_no_overflow sumkahan time_bucket timezone timezone_hour timezone_minute to_base
    to_binary to_centuries to_decades to_hours to_json to_microseconds to_millennia to_milliseconds to_minutes to_months
    to_quarters to_seconds to_timestamp to_weeks to_years today transaction_timestamp translate try_strptime ucase unbin union_extract
    union_tag union_value unpivot_list url_decode url_encode uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7 wavg
    weekday weekofyear weighted_avg xor yearweek now date_part current_localtime user arg_max_nulls_last arg_min_nulls_last
    list_kurtosis_pop list_negative_dot_product md5_number_lower md5_number_upper lttb path_join json_normalize
    json_merge_patch_diff variant_array_length variant_contains variant_exists variant_extract variant_extract_string
    variant_keys variant_type variant_typeof
"""
_KEYWORDS = "all any some row rollup cube"  # which the parser reads as functions in some places
FUNCTIONS = {
    dialect: frozenset(f"{names} {_KEYWORDS}".split())
    for dialect, names in (("postgres", _POSTGRES), ("mysql", _MYSQL), ("sqlite", _SQLITE), ("duckdb", _DUCKDB))
}
"""Functions that only compute from their arguments or describe tables, and that the parser does not know as SQL."""

TABLE_FUNCTIONS = frozenset({
    "generate_series", "exploding_generate_series", "generate_subscripts", "range", "unnest", "json_each", "json_tree",
    "json_array_elements", "jsonb_array_elements", "json_array_elements_text", "jsonb_array_elements_text", "jsonb_each",
    "jsonb_each_text", "json_each_text", "json_object_keys", "jsonb_object_keys", "json_populate_recordset",
    "jsonb_populate_recordset", "json_to_record", "jsonb_to_record", "json_to_recordset", "jsonb_to_recordset",
    "jsonb_path_query", "regexp_matches", "regexp_split_to_table", "string_to_table", "values", "lateral",
})  # fmt: skip
"""What may stand in FROM besides tables, XMLTABLE and JSON_TABLE; everything else may read files or call servers."""

EXTERNAL: tuple[type[exp.Func], ...] = (
    exp.ReadCSV, exp.ReadParquet, exp.NextValueFor, exp.ToFile, exp.NetFunc, exp.SafeFunc, exp.Predict, exp.Secret,
    exp.VectorSearch, exp.FeaturesAtTime, exp.GenerateEmbedding, exp.GenerateText, exp.GenerateTable, exp.GenerateBool,
    exp.GenerateInt, exp.GenerateDouble, exp.AIForecast, exp.AIAgg, exp.AIClassify, exp.AIEmbed, exp.AIGenerate,
    exp.AISimilarity, exp.AISummarizeAgg, exp.MLForecast, exp.MLTranslate, exp.DynamicIdentifier,
)  # fmt: skip
"""Functions that the parser knows as SQL of some dialect, and that reach beyond tables."""


@dataclass(frozen=True, slots=True)
class SystemTables:
    """Tables of the database itself, of which only some may be read."""

    schemas: re.Pattern[str]
    """Schemas in which every table is the system's."""
    unqualified: re.Pattern[str]
    """Names that are the system's where no schema is given."""
    everywhere: re.Pattern[str]
    """Names that are the system's in every schema."""
    harmless: frozenset[str]
    """Names that may be read."""

    def refuse(self, schema: str, name: str) -> bool:
        """Return whether a table is one of the system that may not be read."""
        schema, name = schema.lower(), name.lower()
        is_system = self.schemas.fullmatch(schema) or self.everywhere.fullmatch(name)
        return bool(is_system or (not schema and self.unqualified.fullmatch(name))) and name not in self.harmless


_NONE = re.compile(r"(?!)")
_INFORMATION = """
    schemata tables columns views key_column_usage table_constraints referential_constraints constraint_column_usage
    constraint_table_usage check_constraints routines parameters sequences triggers domains statistics partitions
    character_sets collations element_types view_table_usage view_column_usage
"""
_POSTGRES_TABLES = """
    pg_am pg_attrdef pg_attribute pg_class pg_collation pg_constraint pg_database pg_depend pg_description pg_enum pg_extension
    pg_index pg_indexes pg_inherits pg_matviews pg_namespace pg_operator pg_partitioned_table pg_policies pg_proc pg_range
    pg_rules pg_sequence pg_sequences pg_stat_all_indexes pg_stat_all_tables pg_stat_database pg_stat_user_indexes
    pg_stat_user_tables pg_statio_user_indexes pg_statio_user_tables pg_stats pg_tables pg_timezone_abbrevs pg_timezone_names
    pg_trigger pg_type pg_views
"""
_DUCKDB_TABLES = """
    duckdb_columns duckdb_constraints duckdb_indexes duckdb_schemas duckdb_tables duckdb_types duckdb_views sqlite_master
    sqlite_schema pg_attrdef pg_attribute pg_class pg_constraint pg_description pg_enum pg_index pg_indexes pg_namespace pg_tables
    pg_type pg_views
"""
SYSTEM_TABLES = {
    "postgres": SystemTables(
        re.compile("pg_.*|information_schema"), re.compile("pg_.*"), _NONE,
        frozenset(f"{_INFORMATION} {_POSTGRES_TABLES}".split()),
    ),
    "mysql": SystemTables(
        re.compile("mysql|performance_schema|sys|information_schema"), _NONE, _NONE, frozenset(_INFORMATION.split())
    ),
    "sqlite": SystemTables(
        _NONE, _NONE, re.compile("(sqlite|pragma)_.*|dbstat"),
        frozenset({"sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_temp_schema", "sqlite_sequence", "sqlite_stat1"}),
    ),
    "duckdb": SystemTables(
        re.compile("pg_.*|information_schema"), re.compile("pg_.*"), re.compile("(duckdb|pragma|sqlite)_.*"),
        frozenset(f"{_INFORMATION} {_DUCKDB_TABLES}".split()),
    ),
}  # fmt: skip
"""System tables by dialect: what describes tables may be read; passwords, settings, sessions and files may not."""
