{# The greatest value of a column of a dataset, or the fallback where there is no dataset yet. #}
{% macro newest(path, column, fallback) %}
  {%- set files = path ~ "/**/*.parquet" -%}
  {%- set found = run_query("select count(*) from glob('" ~ files ~ "')") -%}
  {%- if execute and found.rows[0][0] > 0 -%}
    (select max({{ column }}) from read_parquet('{{ files }}'))
  {%- else -%}
    {{ fallback }}
  {%- endif -%}
{% endmacro %}
