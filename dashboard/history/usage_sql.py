"""What one owner held, by the minute: the question in SQL. Hours of it stand in `usage` already."""

from .usage import IDLE_AT_MOST_PCT


def held_sql(minutes: str, where: str, user: str) -> str:
    """`{files}`: those of tasks; `minutes`: those of minutes. Only the owner's Gpus are looked at,
    with all who were on them, because energy is shared among those."""
    return f"""
    with theirs as (
      select distinct gpu from {{files}} where {where} and "user" = {user}),
    each_task as (
      select gpu, node, t, "user", task, sum(seconds) as s, sum(mem_byte_s) as m, sum(mem_s) as ms
      from {{files}} where {where} and gpu in (select gpu from theirs) group by all),
    owners as (
      select gpu, node, t, "user", max(s) as s, sum(m) as m, max(ms) as ms
      from each_task group by all),
    shared as (
      select *, count(*) over (partition by gpu, node, t) as sharing from owners),
    did as (
      select gpu, node, t,
        sum(util_pct_mean * util_pct_n) / nullif(sum(util_pct_n), 0) as util,
        max(util_max_pct_max) as top,
        sum(power_w_mean * power_w_n) / nullif(sum(power_w_n), 0) as power
      from {minutes} where {where} and gpu in (select gpu from theirs) group by all),
    held as (
      select o.t, o."user", s, m, ms, sharing, util, coalesce(top, util) as top, power
      from shared o left join did using (gpu, node, t) where o."user" = {user})
    select t, "user", sum(s) as gpu_s,
      coalesce(sum(util * s), 0) as util_pct_s,
      coalesce(sum(s) filter (util is not null), 0) as util_s,
      coalesce(sum(s) filter (util is not null and top <= {IDLE_AT_MOST_PCT}), 0) as idle_s,
      sum(m) as mem_byte_s, sum(ms) as mem_s,
      coalesce(sum(power * s / sharing), 0) as energy_j,
      coalesce(sum(s) filter (power is not null), 0) as energy_s
    from held group by all"""
