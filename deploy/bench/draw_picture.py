"""Draws the JSON of deploy/bench/run with matplotlib: draw_picture.py REPORT.json PICTURE."""

import json
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot  # noqa: E402

COLOURS = {"pawl": "#1f77b4", "limit": "#7f7f7f"}
OTHER_COLOUR = "#ff7f0e"
MEASURES = (
    ("samples_per_s", "samples/s (median; line: min to max)"),
    ("processor_s_per_million_samples", "processor-seconds per million samples"),
)


def main() -> int:
    """Draws a row of two bar charts for each data set."""
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    count = len(report["data_sets"])
    figure, axes = matplotlib.pyplot.subplots(
        count, 2, squeeze=False, figsize=(15, 4 * count), sharey="row"
    )
    for places, data_set in zip(axes, report["data_sets"]):
        rows = [row for row in data_set["contestants"] if row["samples_per_s"]][::-1]
        for place, (measure, label) in zip(places, MEASURES):
            medians = [statistics.median(row[measure]) for row in rows]
            place.barh(
                [row["title"] for row in rows],
                medians,
                xerr=[
                    [middle - min(row[measure]) for middle, row in zip(medians, rows)],
                    [max(row[measure]) - middle for middle, row in zip(medians, rows)],
                ],
                color=[COLOURS.get(row["name"], OTHER_COLOUR) for row in rows],
            )
            place.set_title("%s: %s" % (data_set["data"]["name"], label))
            place.grid(axis="x", alpha=0.3)
    figure.tight_layout()
    figure.savefig(sys.argv[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
