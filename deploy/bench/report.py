"""The report of deploy/bench/run: a table, and the same as JSON."""

import dataclasses
import statistics

import contestants

# The scores of two seeds of one program differ by up to a third of this.
MAX_AUC_DIFFERENCE = 0.003


@dataclasses.dataclass
class Row:
    """The runs of a contestant, or why it has none."""

    name: str
    title: str
    results: list[contestants.Result] = dataclasses.field(default_factory=list)
    note: str = ""

    def rates(self) -> list[float]:
        """Samples per second of each run."""
        return [result.samples_per_s for result in self.results]

    def costs(self) -> list[float]:
        """Processor-seconds per million samples of each run."""
        return [result.processor_s_per_million for result in self.results]

    def auc(self) -> float:
        """The median of the runs."""
        return statistics.median(result.auc for result in self.results)


@dataclasses.dataclass
class Report:
    """The rows of one data set. The first is Pawl's."""

    data: contestants.DataSet
    rows: list[Row]
    max_auc_difference: float = MAX_AUC_DIFFERENCE

    def disagreeing(self) -> list[Row]:
        """The rows whose score differs from Pawl's."""
        if not self.rows[0].results:
            return []
        return [
            row
            for row in self.rows
            if row.results and abs(row.auc() - self.rows[0].auc()) > self.max_auc_difference
        ]

    def text(self) -> str:
        """The table."""
        data = self.data
        lines = [
            "%s: %s samples, %d fields, %s rows; batch %s, epochs %d, %s test samples"
            % (
                data.name,
                format(data.train_samples, ","),
                data.fields,
                format(data.rows, ","),
                format(data.batch_size, ","),
                data.epochs,
                format(data.test_samples, ","),
            ),
            "%-72s %12s %21s %18s %7s"
            % ("", "samples/s", "min to max", "processor-s per 1M", "AUC"),
        ]
        disagreeing = self.disagreeing()
        for row in self.rows:
            if not row.results:
                lines.append("%-72s %s" % (row.title, row.note.splitlines()[0]))
                continue
            rates = row.rates()
            lines.append(
                "%-72s %12s %21s %18.2f %7.4f%s"
                % (
                    row.title,
                    format(round(statistics.median(rates)), ","),
                    "%s to %s" % (format(round(min(rates)), ","), format(round(max(rates)), ",")),
                    statistics.median(row.costs()),
                    row.auc(),
                    " differs" if row in disagreeing else "",
                )
            )
            if row.note:
                lines.append("  " + row.note.splitlines()[0])
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        """The same, with every run."""
        return {
            "data": {
                name: value
                for name, value in dataclasses.asdict(self.data).items()
                if not isinstance(value, str) or name == "name"
            },
            "contestants": [
                {
                    "name": row.name,
                    "title": row.title,
                    "note": row.note,
                    "samples_per_s": row.rates(),
                    "processor_s_per_million_samples": row.costs(),
                    "auc": [result.auc for result in row.results],
                    "logloss": [result.logloss for result in row.results],
                }
                for row in self.rows
            ],
        }
