{{ config(
    materialized="external",
    plugin="fsspeckit",
    path="lake/orders",
    unique_key="order_id",
    partition_by="day",
) }}

select order_id, status, updated_at, cast(placed_at as date) as day
from read_json('landing/*.jsonl', columns = {
    order_id: 'BIGINT', status: 'VARCHAR', placed_at: 'TIMESTAMP', updated_at: 'TIMESTAMP'
})
where updated_at > {{ newest("lake/orders", "updated_at", "timestamp '1970-01-01'") }}
qualify row_number() over (partition by order_id order by updated_at desc) = 1
