"""How the largest size of a group changes δ and ρ: ``python -m benchmarks.scale_cap [households]``."""

from __future__ import annotations

import sys
import time
import warnings

from shoal.runs.profiles import mean_days

from benchmarks.caps import cap_table
from shoal.runs.shards import shard_of
from shoal.sources.meters.forecast import forecast
from shoal.sources.meters.quality import repair
from shoal.sources.meters.simulate import simulate_meters

HOMES, DAYS, CAPS = 600, 16, (10, 25, 50, 100)
RHO, EPSILON, DELTA = 2.0, 1.0, 1e-5
#: Query, method and groups designed per cap.
CASES = (("point", "center", 12), ("point", "white", 12))


def main() -> None:
    homes = int(sys.argv[1]) if len(sys.argv) > 1 else HOMES
    readings = repair(simulate_meters(homes, DAYS, seed=0))
    forecasts = forecast(readings, order=(2, 1), train_days=15, horizon=12, season="day")
    kept = set(forecasts.households)
    shard = shard_of(readings)
    points = mean_days(shard, readings.step)[[name in kept for name in shard["household"]]]
    print("## Scale: group cap\n")
    print(f"`python -m benchmarks.scale_cap`: {len(kept)} simulated homes, ARMA(2, 1), 12 steps; one cluster cut into")
    print(f"groups. δ at ε = {EPSILON:g} that ρ = {RHO:g} leaves and the share of homes where it is at most {DELTA:g};")
    print(f"ρ that (ε, δ) = ({EPSILON:g}, {DELTA:g}) takes. A sample of groups is designed for each cap.\n")
    print(
        "| query, method | cap | groups | sizes | edges | designed | median δ | worst δ | met | mean ρ | worst ρ | s |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for query, method, sample in CASES:
        for cap in CAPS:
            begin = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                options = {"rho": RHO, "epsilon": EPSILON, "delta": DELTA, "method": method, "sample": sample}
                table = cap_table(forecasts.classes(query), points, [cap], **options)
            r = table.row(0, named=True)
            print(
                f"| {query}, {method} | {cap} | {r['groups']} | {r['smallest']} to {r['largest']} | {r['edges']:,} | "
                f"{r['designed']} | {r['delta_median']:.4g} | {r['delta_worst']:.4g} | {r['met']:.0%} | "
                f"{r['rho_mean']:.3g} | {r['rho_worst']:.3g} | {time.perf_counter() - begin:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
