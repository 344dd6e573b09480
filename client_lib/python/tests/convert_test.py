"""`python -m pawl convert`: record files, and training on them as on the CSV file."""

import contextlib
import gzip
import io
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

import numpy as np

import pawl
from pawl import convert, errors
from pawl.convert import command, record_file

try:
    import pyarrow
    import pyarrow.parquet
except ImportError as error:
    print("pyarrow cannot be imported (%s): its tests are skipped" % error)
    pyarrow = None

ROOT = pathlib.Path(__file__).resolve().parents[3]
# worker/data/records/record_reader_test.cc reads it.
SMALL = ROOT / "worker" / "data" / "records" / "testdata" / "small.rec"
SMALL_COLUMNS = [
    convert.Column("label", "float32"),
    convert.Column("weight", "float64"),
    convert.Column("user", "int64"),
    convert.Column("price", "float32"),
    convert.Column("city", "bytes"),
    convert.Column("items", "bytes", is_list=True),
    convert.Column("hours", "int64", is_list=True),
]


def small_data():
    """Ten rows."""
    return {
        "label": np.arange(10) % 2,
        "weight": np.arange(10) / 4,
        "user": [7, None, -3, 2**62, 7, 7, 7, 0, 1, 2],
        "price": np.array([1.5, np.nan, -2, 3, 1.5, 1.5, 1.5, 1.5, 0.25, 8]),
        "city": ["Rome", "Oslo", "Rome", None, *["Rome"] * 4, "Bonn", "Z\u00fcrich"],
        "items": [["a", "b"], [], ["c"], ["a", "", "a"], [], [], None, ["b"], ["x", "y"], ["z"]],
        "hours": (np.arange(15), np.array([0, 2, 2, 5, 5, 9, 9, 9, 12, 14, 15])),
    }


class Blocks:
    """Reads what RecordWriter writes, as worker/data/records/README.md says."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = file.read()
        magic, size, crc = struct.unpack_from("<8sII", self.bytes)
        assert magic == b"PAWLREC1", magic
        schema = self.bytes[16 : 16 + size]
        assert zlib.crc32(schema) == crc
        self.blocks = []
        at = 16 + size
        while True:
            head = struct.unpack_from("<4sIIIIIQI", self.bytes, at)
            assert head[0] == b"BLK1" and zlib.crc32(self.bytes[at : at + 32]) == head[-1]
            at += 36
            self.blocks.append((head[1], head[4], self.bytes[at : at + head[2]]))
            assert zlib.crc32(self.blocks[-1][2]) == head[5]
            at += head[2]
            if head[1] == 0:
                assert at == len(self.bytes)
                return


class ConvertTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.back = os.getcwd()
        os.chdir(self.folder)

    def tearDown(self):
        os.chdir(self.back)

    def convert(self, *arguments, code=0):
        output, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(error):
            self.assertEqual(command.main(arguments), code, error.getvalue())
        return output.getvalue() + error.getvalue()

    def test_bytes_are_those_that_the_reader_is_tested_with(self):
        with convert.RecordWriter("small.rec", SMALL_COLUMNS, rows_per_block=4) as writer:
            writer.write(small_data())
        self.assertEqual(writer.rows, 10)
        with open("small.rec", "rb") as file:
            self.assertEqual(file.read(), SMALL.read_bytes())

    def test_blocks_are_compressed_where_that_pays(self):
        compressions = ["none", "zlib"]
        if record_file.zstd_compressor() is not None:
            compressions.append("zstd")
        sizes = []
        for number, name in enumerate(compressions):
            with convert.RecordWriter(
                name, [convert.Column("x", "float64")], rows_per_block=1000, compression=name
            ) as writer:
                writer.write({"x": np.arange(1000) + 0.5})
                writer.write({"x": np.random.default_rng(1).random(1)})
            blocks = Blocks(name).blocks
            self.assertEqual([block[:2] for block in blocks], [(1000, number), (1, 0), (0, 0)])
            sizes.append(len(blocks[0][2]))
        self.assertLess(max(sizes[1:]), sizes[0] / 2)

    def test_block_that_would_be_too_large_is_divided(self):
        with convert.RecordWriter("large.rec", [convert.Column("x", "bytes")]) as writer:
            writer.write({"x": [bytes([i]) * (3 << 20) for i in range(12)]})
        self.assertEqual([block[0] for block in Blocks("large.rec").blocks], [3, 3, 3, 3, 0])
        with self.assertRaisesRegex(errors.InvalidArgumentError, "row 0 is too large"):
            with convert.RecordWriter("huge.rec", [convert.Column("x", "bytes")]) as writer:
                writer.write({"x": [bytes(17 << 20)]})
        self.assertEqual(os.listdir(), ["large.rec"])

    def test_wrong_data_is_refused_by_column(self):
        cases = [
            ("int64", [1.5], "'x' has values that are not integers"),
            ("int64", [2**63, -1.0], "'x' has values that are not integers"),
            ("int64", np.array([2**63], np.uint64), "'x' has integers of 2\\^63"),
            ("float32", ["a"], "'x' has values that are not numbers"),
            ("float32", np.zeros((2, 2)), "'x' has 2 dimensions"),
            ("int32", [1], "'x' has the type 'int32'"),
        ]
        nan = float("nan")
        for values in ([[1.0], [nan, 2.0]], [np.array([nan])], np.array([[1.0, nan]])):
            with self.subTest(values), self.assertRaisesRegex(
                errors.InvalidArgumentError, "'x' has a list with NaN"
            ):
                column = convert.Column("x", "float32", is_list=True)
                with convert.RecordWriter("x.rec", [column]) as writer:
                    writer.write({"x": values})
        for kind, values, text in cases:
            with self.subTest(text), self.assertRaisesRegex(errors.InvalidArgumentError, text):
                with convert.RecordWriter("x.rec", [convert.Column("x", kind)]) as writer:
                    writer.write({"x": values})
        both = [convert.Column("x", "int64"), convert.Column("y", "int64")]
        for data, text in (({"x": [1]}, "'y' is missing"), ({"x": [1], "y": []}, "'y' has 0 rows")):
            with self.subTest(text), self.assertRaisesRegex(errors.InvalidArgumentError, text):
                with convert.RecordWriter("x.rec", both) as writer:
                    writer.write(data)
        self.assertEqual(os.listdir(), [])

    def content(self, kind, values):
        """The bytes of the block of a file with this column."""
        with convert.RecordWriter("x.rec", [convert.Column("x", kind)]) as writer:
            writer.write({"x": values})
        return Blocks("x.rec").blocks[0][2]

    def test_masked_objects_are_absent(self):
        masked = np.ma.masked_array(np.array(["a", "b", None], object), [True, False, False])
        self.assertEqual(self.content("bytes", masked), self.content("bytes", [None, "b", None]))

    def test_integers_beside_floats_stay_exact(self):
        exact = self.content("int64", [2**60 + 1, 1, None])
        self.assertEqual(self.content("int64", [2**60 + 1, 1.0, None]), exact)
        self.assertEqual(self.content("int64", [2**60 + 1, np.float32(1), float("nan")]), exact)

    def test_objects_that_are_numbers_are_written(self):
        for kind, values in (("int64", [1, 2]), ("float64", [0.5, 2])):
            objects = np.array(values, object)
            self.assertEqual(self.content(kind, objects), self.content(kind, values))

    def test_arrays_become_columns(self):
        np.save("y.npy", np.arange(5, dtype=np.float16))
        np.save("m.npy", np.arange(10).reshape(5, 2))
        np.save("s.npy", np.array(["a", "bb", "a", "", "c"]))
        files = ["--npy", "y=y.npy", "m=m.npy", "s=s.npy"]
        output = self.convert("n.rec", *files)
        self.assertEqual(
            [line.split() for line in output.splitlines()[1:]],
            [["float32", "y"], ["int64", "m_0"], ["int64", "m_1"], ["bytes", "s"]],
        )
        with convert.RecordWriter(
            "same.rec",
            [
                convert.Column("y", "float32"),
                convert.Column("m_0", "int64"),
                convert.Column("m_1", "int64"),
                convert.Column("s", "bytes"),
            ],
        ) as writer:
            writer.write(
                {
                    "y": range(5),
                    "m_0": [0, 2, 4, 6, 8],
                    "m_1": [1, 3, 5, 7, 9],
                    "s": ["a", "bb", "a", "", "c"],
                }
            )
        self.assertEqual(Blocks("n.rec").bytes, Blocks("same.rec").bytes)
        self.assertIn("m  (list)", self.convert("l.rec", *files, "--list", "m"))
        np.save("short.npy", np.arange(4))
        self.assertIn("y has 5", self.convert("n.rec", *files, "z=short.npy", code=1))
        self.assertIn("no '='", self.convert("n.rec", "--npy", "y.npy", code=1))

    @unittest.skipIf(pyarrow is None, "no pyarrow")
    def test_parquet_files_become_what_the_writer_makes_of_their_columns(self):
        data = small_data()
        values, offsets = data["hours"]
        lists = [values[a:b] for a, b in zip(offsets, offsets[1:])]
        table = pyarrow.table({**data, "label": data["label"].astype(np.float32), "hours": lists})
        table = table.set_column(3, "price", pyarrow.array(data["price"], pyarrow.float32()))
        table = table.set_column(4, "city", table.column("city").dictionary_encode())
        pyarrow.parquet.write_table(table.slice(0, 5), "a.parquet")
        pyarrow.parquet.write_table(table.slice(5), "b.parquet")
        self.convert("p.rec", "--parquet", "a.parquet", "b.parquet")
        with convert.RecordWriter("same.rec", SMALL_COLUMNS) as writer:
            for part in (slice(0, 5), slice(5, 10)):
                chunk = {name: values[part] for name, values in data.items() if name != "hours"}
                writer.write({**chunk, "hours": lists[part]})
        self.assertEqual(Blocks("p.rec").bytes, Blocks("same.rec").bytes)
        pyarrow.parquet.write_table(table.drop_columns(["city"]), "c.parquet")
        self.assertIn("c.parquet has other columns",
                      self.convert("p.rec", "--parquet", "a.parquet", "c.parquet", code=1))
        self.assertIn("no column 'town'",
                      self.convert("p.rec", "--parquet", "a.parquet", "--columns", "town", code=1))
        bad = pyarrow.table({"l": [[1, None]]})
        pyarrow.parquet.write_table(bad, "bad.parquet")
        self.assertIn("lists with empty values",
                      self.convert("p.rec", "--parquet", "bad.parquet", code=1))

    def test_quotes_of_csv_files_may_be_characters(self):
        with open("a.tsv", "w", encoding="utf-8") as file:
            file.write('x\ty\n"a\t1\n')
        flags = ["--csv", "a.tsv", "--delimiter", "\\t"]
        self.assertIn("1 rows", self.convert("a.rec", *flags, "--no-quotes"))
        self.assertIn(b'"a', Blocks("a.rec").bytes)
        with open("b.tsv", "w", encoding="utf-8") as file:
            file.write('x\ty\n"a\t1"\t1\n')
        flags[1] = "b.tsv"
        self.assertIn("1 rows", self.convert("b.rec", *flags))
        self.assertIn("3 fields", self.convert("b.rec", *flags, "--no-quotes", code=1))

    def test_malformed_csv_files_are_named(self):
        with open("a.csv", "w", encoding="utf-8") as file:
            file.write("x,y\n1,2\n3\n")
        output = self.convert("a.rec", "--csv", "a.csv", code=1)
        self.assertIn("a.csv:3: the line has 1 fields, but the header has 2", output)
        with open("a.csv", "w", encoding="utf-8") as file:
            file.write("x,y\n1,2\n3,z\n")
        self.assertIn("column 'y': 'z' is not a number",
                      self.convert("a.rec", "--csv", "a.csv", "--type", "y=int64", code=1))
        self.assertIn("no column 'z'",
                      self.convert("a.rec", "--csv", "a.csv", "--list", "z", code=1))
        self.assertIn("cannot open b.csv", self.convert("a.rec", "--csv", "b.csv", code=1))
        self.assertIn("must be one character",
                      self.convert("a.rec", "--csv", "a.csv", "--delimiter", ";;", code=1))
        self.assertIn("only for --parquet",
                      self.convert("a.rec", "--csv", "a.csv", "--columns", "x", code=1))
        with open("a.csv", "wb") as file:
            file.write(b"\xff\xfe\x01,\x80\n1,2\n")
        self.assertIn("a.csv:1: the header line is not UTF-8",
                      self.convert("a.rec", "--csv", "a.csv", code=1))
        self.assertEqual(os.listdir(), ["a.csv"])

    def test_byte_order_mark_is_no_part_of_a_name(self):
        text = "\ufeffx,y\n1,2\n".encode()
        with open("a.csv", "wb") as file:
            file.write(text)
        with gzip.open("b.csv.gz", "wb") as file:
            file.write(text)
        for name in ("a.csv", "b.csv.gz"):
            output = self.convert("a.rec", "--csv", name, "--type", "x=int64", "y=int64")
            self.assertEqual(
                [line.split() for line in output.splitlines()[1:]], [["int64", "x"], ["int64", "y"]]
            )

    def test_fields_of_csv_files_may_be_long(self):
        with open("a.csv", "w", encoding="utf-8") as file:
            file.write("x\n%s\n" % ("a" * 200000))
        self.assertIn("1 rows", self.convert("a.rec", "--csv", "a.csv"))
        self.assertIn(b"a" * 200000, Blocks("a.rec").bytes)

    def test_cut_or_damaged_gzip_files_are_named(self):
        lines = ["x,y"] + ["%d,%d" % (i, i * i) for i in range(50000)]
        whole = gzip.compress("\n".join(lines).encode())
        damaged = bytearray(whole)
        damaged[len(whole) // 2] ^= 0xFF
        for content in (whole[:-100], bytes(damaged), whole[:20]):
            with open("a.csv.gz", "wb") as file:
                file.write(content)
            output = self.convert("a.rec", "--csv", "a.csv.gz", code=1)
            self.assertRegex(output, r"^pawl convert: a\.csv\.gz:\d+: ")
            self.assertEqual(os.listdir(), ["a.csv.gz"])

    def test_command_is_one_of_pawl(self):
        with open("a.csv", "w", encoding="utf-8") as file:
            file.write("x,y\n1,2\n")
        result = subprocess.run(
            [sys.executable, "-m", "pawl", "convert", "a.rec", "--csv", "a.csv"],
            check=True,
            capture_output=True,
            text=True,
        )
        self.assertIn("a.rec: 1 rows, 2 columns", result.stdout)


def tf_record(message):
    """A record of a TFRecord file."""

    def crc(data):
        value = 0xFFFFFFFF
        for byte in data:
            value ^= byte
            for _ in range(8):
                value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        value ^= 0xFFFFFFFF
        return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(message))
    return length + crc(length) + message + crc(message)


def tf_example(features):
    """A tf.Example message; features: integers, floats or lists of texts by name."""

    def field(number, content):
        assert len(content) < 128
        return bytes([number << 3 | 2, len(content)]) + content

    entries = b""
    for name, value in features.items():
        if isinstance(value, int):
            assert 0 <= value < 128
            kind = field(3, field(1, bytes([value])))
        elif isinstance(value, float):
            kind = field(2, field(1, struct.pack("<f", value)))
        else:
            kind = field(1, b"".join(field(1, text.encode()) for text in value))
        entries += field(1, field(1, name.encode()) + field(2, kind))
    # The message may be longer than 127 bytes.
    size = len(entries)
    return bytes([10, size & 127 | 128, size >> 7]) + entries


class TrainingTest(unittest.TestCase):
    def test_formats_give_the_same_model(self):
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        back = os.getcwd()
        os.chdir(folder)
        self.addCleanup(os.chdir, back)
        rng = np.random.default_rng(1)
        rows = []
        for _ in range(300):
            user, item, price = int(rng.integers(20)), int(rng.integers(30)), rng.integers(8) / 4
            tags = ["t%d" % tag for tag in rng.integers(12, size=int(rng.integers(5)))]
            rows.append(
                {
                    "label": int((user + item) % 3 == 0),
                    "weight": float(1 + user % 3) / 2,
                    "user": user,
                    "item": ["i%d" % item],
                    "price": float(price),
                    "tags": tags,
                }
            )
        with open("train.csv", "w", encoding="utf-8") as file:
            print(*rows[0], sep=",", file=file)
            for row in rows:
                fields = [value if not isinstance(value, list) else "|".join(value)
                          for value in row.values()]
                print(*fields, sep=",", file=file)
        with open("train.tfrecord", "wb") as file:
            for row in rows:
                file.write(tf_record(tf_example(dict(reversed(row.items())))))
        with contextlib.redirect_stdout(io.StringIO()):
            types = ["label=float32", "weight=float64", "user=int64", "price=float32"]
            flags = ["--type", *types, "--list", "tags=|", "--rows-per-block", "50"]
            self.assertEqual(command.main(["train.rec", "--csv", "train.csv", *flags]), 0)
        columns = [
            {"name": "label", "label": {}},
            {"name": "weight", "weight": {}},
            {"name": "user", "categorical": {}},
            {"name": "item", "hashed": {"buckets": 1000}},
            {"name": "price", "numeric": {}},
            {"name": "level", "source": "price", "bucketized": {"width": 1}},
            {"name": "both", "crossed": {"columns": ["user", "item"]}},
        ]
        job = {
            "name": "formats",
            "model": {"wide_deep": {"dim": 4, "hidden": [8]}},
            "optimizer": {"adagrad": {"learning_rate": 0.1}},
            "batch_size": 30,
            "epochs": 2,
            "logical_workers": 2,
        }
        tags = {"name": "tags", "categorical": {}, "list": {"max_length": 3}, "domain": "tag"}
        csv_tags = {**tags, "list": {"max_length": 3, "separator": "|"}}
        for settings in ({}, {"window_samples": 64, "block_bytes": 1024, "keep_order": True}):
            results = {}
            records = {"columns": [*columns, tags]}
            for name, spec in (
                ("train.csv", {"format": "CSV", "csv": {"columns": [*columns, csv_tags]}}),
                ("train.rec", {"format": "RECORDS", "records": records}),
                ("train.tfrecord", {"format": "TFRECORD", "records": records}),
            ):
                data = {"train": name, "eval": name, **spec, **settings}
                out = "out-%s-%d" % (name, len(settings))
                result = pawl.train({**job, "data": data}, quiet=True, out=out)
                self.assertEqual(result["samples"], 600)
                scores = result["eval"]
                results[name] = (result["digest"], scores["auc"], scores["logloss"])
            self.assertEqual(results["train.rec"], results["train.csv"])
            self.assertEqual(results["train.tfrecord"], results["train.csv"])


if __name__ == "__main__":
    unittest.main()
