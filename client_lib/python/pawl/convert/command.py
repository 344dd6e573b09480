"""`python -m pawl convert`: files of other formats become record files."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Optional, Sequence

from pawl import errors
from pawl.convert import sources
from pawl.convert.record_file import COMPRESSIONS, RecordWriter

_DESCRIPTION = """\
Writes a record file for the built-in models: data { train: "OUT" format: RECORDS
records { columns { ... } } }. worker/data/records/README.md describes the format.
"""
_EPILOG = """\
examples:
  pawl convert clicks.rec --parquet day_0.parquet day_1.parquet
  pawl convert clicks.rec --npy label=y.npy user=users.npy price=prices.npy
  pawl convert clicks.rec --csv clicks.csv --type label=float32 user=int64 --list items='|'
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "pawl convert",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("out", metavar="OUT", help="the record file")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--parquet", nargs="+", metavar="FILE", help="Parquet files; needs the package pyarrow"
    )
    source.add_argument(
        "--npy",
        nargs="+",
        metavar="NAME=FILE",
        help=".npy files; one of shape [n, k] is the columns NAME_0 to NAME_k-1, or with --list "
        "a list",
    )
    source.add_argument("--csv", nargs="+", metavar="FILE", help="CSV files, plain or gzip")
    parser.add_argument(
        "--columns", nargs="+", metavar="NAME", help="Parquet: take only these columns"
    )
    parser.add_argument(
        "--list",
        nargs="+",
        default=[],
        metavar="NAME[=SEPARATOR]",
        help="columns that are lists; CSV: the string between two elements, by default |",
    )
    parser.add_argument(
        "--type",
        nargs="+",
        default=[],
        metavar="NAME=TYPE",
        help="CSV: columns of numbers: float32, float64 or int64; others are texts",
    )
    parser.add_argument("--delimiter", default=",", help="CSV: between two fields; \\t is a tab")
    parser.add_argument(
        "--names", nargs="+", metavar="NAME", help="CSV: all columns, without a header line"
    )
    parser.add_argument(
        "--no-quotes", action="store_true", help="CSV: a quote is a character like others"
    )
    parser.add_argument("--rows-per-block", type=int, default=8192, metavar="N")
    parser.add_argument("--compression", choices=COMPRESSIONS, default="none")
    return parser


def _pairs(words: Sequence[str], flag: str, default: Optional[str] = None) -> dict[str, str]:
    pairs = {}
    for word in words:
        name, found, value = word.partition("=")
        if not found and default is None:
            raise errors.InvalidArgumentError("%s %s has no '='" % (flag, word))
        pairs[name] = value if found else default or ""
    return pairs


def _source(options: argparse.Namespace) -> sources.Source:
    if options.columns and not options.parquet:
        raise errors.InvalidArgumentError("--columns is only for --parquet")
    if options.parquet:
        return sources.parquet(options.parquet, options.columns)
    if options.npy:
        lists = list(_pairs(options.list, "--list", ""))
        return sources.npy(_pairs(options.npy, "--npy"), lists)
    return sources.text(
        options.csv,
        delimiter=options.delimiter.replace("\\t", "\t"),
        names=options.names,
        types=_pairs(options.type, "--type"),
        lists=_pairs(options.list, "--list", "|"),
        quotes=not options.no_quotes,
    )


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    begin = time.monotonic()
    try:
        source = _source(options)
        with RecordWriter(
            options.out,
            source.columns,
            rows_per_block=options.rows_per_block,
            compression=options.compression,
        ) as writer:
            for chunk in source.chunks:
                writer.write(chunk)
    except (errors.Error, OSError) as error:
        print("pawl convert: %s" % error, file=sys.stderr)
        return 1
    print(
        "%s: %d rows, %d columns, %.1f s"
        % (options.out, writer.rows, len(source.columns), time.monotonic() - begin)
    )
    for column in source.columns:
        print("  %-10s %s%s" % (column.type, column.name, "  (list)" if column.is_list else ""))
    return 0
