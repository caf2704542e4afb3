"""Writes files, loads them, builds a training set, fits a model to it and asks for one online prediction.

The target is a known function of the features as of each instant, so that the fit is exact only if no value leaks.
"""

from __future__ import annotations

import csv
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from ematix_flow import connect, ematix

START = datetime(2026, 1, 1, tzinfo=UTC)
CUSTOMERS, DAYS, REGIONS = 30, 20, ("north", "south")
FEATURES = ("visits", "basket", "price_level")


def write_files(folder: Path) -> list[dict[str, Any]]:
    """Write the events of customers and regions, and return the spine with what customers spent."""
    draw = random.Random(7)  # noqa: S311 - an example, no secret
    folder.mkdir(exist_ok=True)
    levels = {(region, day): 1 + draw.random() for region in REGIONS for day in range(DAYS)}
    known: dict[tuple[int, int], tuple[int, float]] = {}
    for customer in range(CUSTOMERS):
        for day in sorted(draw.sample(range(DAYS), 5)):
            known[customer, day] = draw.randrange(1, 50), round(draw.uniform(5, 80), 2)
    with (folder / "customers.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("customer_id", "visits", "basket", "at"))
        rows.writerows((c, *values, (START + timedelta(days=d)).isoformat()) for (c, d), values in known.items())
    with (folder / "regions.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("region", "price_level", "at"))
        rows.writerows((r, level, (START + timedelta(days=d)).isoformat()) for (r, d), level in levels.items())
    spine = []
    for (customer, day), (visits, basket) in known.items():
        region = REGIONS[customer % 2]
        spent = 3 * visits + 0.5 * basket + 10 * levels[region, day]
        at = START + timedelta(days=day, hours=6)
        spine.append({"customer_id": customer, "region": region, "as_of": at, "spent": spent})
    return spine


def fitted(features: Any, spent: Any) -> Any:
    """Return the coefficients of a linear model: by scikit-learn where it is installed, else by least squares."""
    try:
        from sklearn.linear_model import LinearRegression
    except ImportError:
        return np.linalg.lstsq(features, spent, rcond=None)[0]
    return LinearRegression(fit_intercept=False).fit(features, spent).coef_


def main() -> None:
    """Go from files to a prediction, in the current folder."""
    os.environ.setdefault("EMATIX_FLOW_ENGINE", "local")
    import pipelines

    spine = write_files(Path("data"))
    for pipeline in (pipelines.customers, pipelines.regions):
        pipeline()
    table = ematix.training_set(
        "shop",
        spine=spine,
        feature_views=[pipelines.CustomerFeatures, pipelines.RegionFeatures],
        columns=list(FEATURES),
        prefer="arrow",
        manifest="training.json",
    )
    matrix = np.column_stack([table.column(name).to_numpy() for name in FEATURES])
    model = fitted(matrix, table.column("spent").to_numpy())
    print("model:", ", ".join(f"{name} {value:.2f}" for name, value in zip(FEATURES, model, strict=True)))
    conn = connect("shop")
    now = pipelines.CustomerFeatures.online_features(conn, entity_keys={"customer_id": 0}, columns=FEATURES[:2])
    region = pipelines.RegionFeatures.point_in_time(conn, entity_keys={"region": "north"}, as_of=datetime.now(UTC))
    conn.close()
    assert now is not None  # noqa: S101 - every customer was loaded
    assert region is not None  # noqa: S101 - every region was loaded
    values = np.array([now["visits"], now["basket"], region["price_level"]])
    print(f"customer 0 is expected to spend {values @ model:.2f} now")


if __name__ == "__main__":
    main()
