#!/usr/bin/env python3
"""Tests of `pawlctl export`: trains jobs to their end and uses their models without Pawl.

The test shares no code with Pawl. It parses arrays after the specification of NumPy's format, and
computes keys and scores after server/export/model_format.md and the digest after
scheduler/status/digest.h.

Usage: export_test.py PAWLCTL
"""

import ast
import json
import math
import os
import random
import shutil
import struct
import sys
import unittest

from testing.program import TrainingTest

MASK = (1 << 64) - 1


def read_npy(path):
    """Returns the shape and the elements, in C order."""
    with open(path, "rb") as file:
        data = file.read()
    magic, major, minor, length = struct.unpack_from("<6sBBH", data)
    assert (magic, major, minor) == (b"\x93NUMPY", 1, 0), path
    assert (10 + length) % 64 == 0, path
    header = ast.literal_eval(data[10 : 10 + length].decode("latin1"))
    assert not header["fortran_order"], path
    kind = {"<f4": "f", "<u8": "Q"}[header["descr"]]
    count = math.prod(header["shape"])
    assert len(data) == 10 + length + count * struct.calcsize(kind), path
    return header["shape"], struct.unpack_from("<%d%s" % (count, kind), data, 10 + length)


def read_safetensors(path):
    """Returns the shape and the elements of each tensor, and the metadata."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0, path
    metadata, end, tensors = header.pop("__metadata__"), 0, {}
    for name, tensor in header.items():
        kind = {"F32": "f", "U64": "Q"}[tensor["dtype"]]
        count = math.prod(tensor["shape"])
        assert tensor["data_offsets"] == [end, end + count * struct.calcsize(kind)], path
        values = struct.unpack_from("<%d%s" % (count, kind), data, 8 + length + end)
        tensors[name] = (tuple(tensor["shape"]), values)
        end = tensor["data_offsets"][1]
    assert len(data) == 8 + length + end, path
    return tensors, metadata


def rotate(value, bits):
    return ((value << bits) | (value >> (64 - bits))) & MASK


def xxh64(data, seed):
    """XXH64, after its specification."""
    p1, p2, p3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    p4, p5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
    step = lambda sum_, lane: rotate((sum_ + lane * p2) & MASK, 31) * p1 & MASK
    at = 0
    if len(data) >= 32:
        sums = [(seed + p1 + p2) & MASK, (seed + p2) & MASK, seed, (seed - p1) & MASK]
        while at + 32 <= len(data):
            for i, lane in enumerate(struct.unpack_from("<4Q", data, at)):
                sums[i] = step(sums[i], lane)
            at += 32
        result = sum(rotate(s, bits) for s, bits in zip(sums, (1, 7, 12, 18))) & MASK
        for s in sums:
            result = ((result ^ step(0, s)) * p1 + p4) & MASK
    else:
        result = (seed + p5) & MASK
    result = (result + len(data)) & MASK
    while at + 8 <= len(data):
        result = (
            rotate(result ^ step(0, struct.unpack_from("<Q", data, at)[0]), 27) * p1 + p4
        ) & MASK
        at += 8
    if at + 4 <= len(data):
        result = (
            rotate(result ^ (struct.unpack_from("<I", data, at)[0] * p1 & MASK), 23) * p2 + p3
        ) & MASK
        at += 4
    for byte in data[at:]:
        result = rotate(result ^ (byte * p5 & MASK), 11) * p1 & MASK
    for shift, prime in ((33, p2), (29, p3), (32, 1)):
        result = (result ^ (result >> shift)) * prime & MASK
    return result


def make_crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = make_crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def partition_of(table, key, partitions):
    x = (key + table * 0x9E3779B97F4A7C15) & MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return (x ^ (x >> 31)) % partitions


class Exported:
    """An exported model."""

    def __init__(self, folder):
        with open(os.path.join(folder, "model.json"), encoding="utf-8") as file:
            self.json = json.load(file)
        self.dense, self.sparse, self.files = {}, {}, {"model.json"}
        for table in self.json["tables"]:
            if table["kind"] == "dense":
                shape, values = read_npy(os.path.join(folder, table["file"]))
                assert list(shape) == table["shape"]
                self.dense[table["name"]] = (shape, values)
                self.files.add(table["file"])
                continue
            (count,), keys = read_npy(os.path.join(folder, table["keys_file"]))
            shape, values = read_npy(os.path.join(folder, table["rows_file"]))
            width = table["row_width"]
            assert shape == (count, width) and count == table["rows"]
            assert list(keys) == sorted(set(keys))
            self.sparse[table["name"]] = {
                key: values[i * width : (i + 1) * width] for i, key in enumerate(keys)
            }
            self.files |= {table["keys_file"], table["rows_file"]}
        assert self.files == set(os.listdir(folder)), os.listdir(folder)

    def digest(self):
        """The digest of all tables. REQUIRES: every block was pushed."""
        records = []
        for table in self.json["tables"]:
            if table["kind"] == "dense":
                values = self.dense[table["name"]][1]
                rows = {
                    b: values[b * 65536 : (b + 1) * 65536]
                    for b in range((len(values) + 65535) // 65536)
                }
            else:
                rows = self.sparse[table["name"]]
            parts = {}
            for key in sorted(rows):
                part = parts.setdefault(
                    partition_of(table["id"], key, self.json["partitions"]), [b"", 0]
                )
                part[0] += struct.pack("<Q%df" % len(rows[key]), key, *rows[key])
                part[1] += 1
            records += [
                (table["name"].encode(), p, crc32c(data), count)
                for p, (data, count) in parts.items()
            ]
        return "%08x" % crc32c(
            b"".join(name + b"\0" + struct.pack("<IIQ", *rest) for name, *rest in sorted(records))
        )

    def linear(self, keys):
        weights = self.sparse.get("linear") or self.sparse["embedding"]
        return self.dense["bias"][1][0] + sum(weights[key][-1] for key in keys)

    def deepfm(self, keys):
        vectors = [self.sparse["embedding"][key][:-1] for key in keys]
        score = self.linear(keys)
        for i, one in enumerate(vectors):
            score += sum(a * b for other in vectors[:i] for a, b in zip(one, other))
        layer, values = 0, [value for vector in vectors for value in vector]
        while "mlp/%d/weight" % layer in self.dense:
            (inputs, outputs), weights = self.dense["mlp/%d/weight" % layer]
            bias = self.dense["mlp/%d/bias" % layer][1]
            if layer > 0:
                values = [max(value, 0) for value in values]
            values = [
                bias[j] + sum(values[i] * weights[i * outputs + j] for i in range(inputs))
                for j in range(outputs)
            ]
            layer += 1
        return score + values[0]


def logloss(samples, score):
    """`samples`: (label, keys)."""
    total = 0
    for label, keys in samples:
        chance = 1 / (1 + math.exp(-score(keys)))
        total -= math.log(chance if label else 1 - chance)
    return total / len(samples)


class ExportTest(TrainingTest):
    def setUp(self):
        super().setUp()
        self.model = self.path("model")
        self.generator = random.Random(7)

    def export(self):
        code, text, err = self.pawlctl(
            "export", "--checkpoint=" + self.checkpoints, "--out=" + self.model
        )
        self.assertEqual((code, err), (0, ""), text)
        return Exported(self.model), text

    def write_libsvm_job(self):
        samples = {}
        for name, lines in (("train", 2000), ("eval", 500)):
            samples[name] = []
            for _ in range(lines):
                keys = [self.generator.randrange(10) + 1, self.generator.randrange(10) + 11]
                samples[name].append((int((keys[0] < 6) != (self.generator.random() < 0.1)), keys))
            self.write(
                name + ".libsvm",
                "".join("%d %d:1 %d:1\n" % (label, *keys) for label, keys in samples[name]),
            )
        self.write(
            "job.pbtxt",
            """name: "small" seed: 7 batch_size: 64 epochs: 2 logical_workers: 4 partitions: 16
data { train: "train.libsvm" eval: "eval.libsvm" format: LIBSVM }
model { deepfm { dim: 4 hidden: [8, 4] } } optimizer { adagrad { learning_rate: 0.1 } }
""",
        )
        return samples["eval"]

    def test_score_follows_from_files_and_a_line_of_data(self):
        columns = ("hour", "origin", "a destination of a name longer than 32 bytes")
        samples = []
        for name, lines in (("train", 2000), ("eval", 500)):
            rows = [",".join(columns) + ",distance,late"]
            for _ in range(lines):
                row = [
                    "%d" % self.generator.randrange(24),
                    "airport-%d" % self.generator.randrange(5),
                    "an airport with a name of more than 32 bytes: %d"
                    % self.generator.randrange(5),
                ]
                distance = self.generator.randrange(40)
                late = int((int(row[0]) > 12) != (self.generator.random() < 0.1))
                rows.append(",".join(row + [str(distance), str(late)]))
                if name == "eval":
                    samples.append((late, row, distance))
            self.write(name + ".csv", "\n".join(rows) + "\n")
        self.write(
            "job.pbtxt",
            """name: "late" seed: 7 batch_size: 64 epochs: 2 logical_workers: 4 partitions: 16
data { train: "train.csv" eval: "eval.csv" format: CSV csv {
  columns { name: "late" label {} }
  columns { name: "%s" categorical {} } columns { name: "%s" categorical {} }
  columns { name: "%s" categorical {} }
  columns { name: "distance" bucketized { width: 10 } }
  columns { name: "far" source: "distance" numeric { mean: 20 scale: 12 } }
  columns { name: "late-hour" source: "hour" numeric { mean: 11.5 } }
  columns { name: "pair" crossed { columns: "hour" columns: "origin" } } } }
model { logistic_regression {} } optimizer { adagrad { learning_rate: 0.1 } }
"""
            % columns,
        )
        metrics = self.train()
        model, text = self.export()
        self.assertIn("model of job late at step %d, its end" % metrics["steps"], text)
        self.assertEqual(model.json["model"], "logistic_regression")

        def keys_of(row, distance):
            key = lambda feature, category: xxh64(category.encode(), xxh64(feature.encode(), 0))
            keys = [key(feature, category) for feature, category in zip(columns, row)]
            keys.append(key("distance", str(distance // 10)))
            keys.append(xxh64(struct.pack("<2Q", *keys[:2]), xxh64(b"pair", 0)))
            return keys

        # A key without training samples has no row and counts as 0.
        for label, row, distance in samples:
            for key in keys_of(row, distance):
                model.sparse["linear"].setdefault(key, (0.0,))
        numbers = {
            id(row): ((distance - 20) / 12, int(row[0]) - 11.5) for _, row, distance in samples
        }
        weights = model.dense["linear/numeric"][1]
        self.assertTrue(all(weights), weights)
        reached = logloss(
            [(label, (row, distance)) for label, row, distance in samples],
            lambda sample: model.linear(keys_of(*sample))
            + sum(weight * number for weight, number in zip(weights, numbers[id(sample[0])])),
        )
        self.assertAlmostEqual(reached, metrics["eval"]["logloss"], places=5)
        self.assertLess(reached, 0.6)

    def test_model_is_the_final_one(self):
        samples = self.write_libsvm_job()
        for mode in ("SYNC", "BOUNDED", "ASYNC"):
            with self.subTest(mode):
                shutil.rmtree(self.checkpoints, ignore_errors=True)
                shutil.rmtree(self.model, ignore_errors=True)
                metrics = self.train(
                    "--set=consistency.mode=" + mode, "--set=checkpoint.every_steps=16"
                )
                model, _ = self.export()
                self.assertEqual(model.json["step"], metrics["steps"])
                self.assertTrue(model.json["of_end"])
                self.assertEqual(model.digest(), metrics["digest"])
                self.assertAlmostEqual(
                    logloss(samples, model.deepfm), metrics["eval"]["logloss"], places=5
                )

    def test_all_reduced_dense_part_is_the_final_one(self):
        samples = self.write_libsvm_job()
        metrics = self.train("--set=dense_path=ALLREDUCE", "--set=all_reduce.write_back_steps=1000")
        model, _ = self.export()
        self.assertEqual(
            sorted(model.dense),
            [
                "bias",
                "mlp/0/bias",
                "mlp/0/weight",
                "mlp/1/bias",
                "mlp/1/weight",
                "mlp/2/bias",
                "mlp/2/weight",
            ],
        )
        self.assertAlmostEqual(logloss(samples, model.deepfm), metrics["eval"]["logloss"], places=5)

    def test_early_stopping_exports_the_best_parameters(self):
        samples = self.write_libsvm_job()
        metrics = self.train(
            "--set=evaluation.every_steps=8",
            "--set=evaluation.early_stopping.patience=1",
            "--set=evaluation.early_stopping.metric=LOGLOSS",
            "--set=optimizer.adagrad.learning_rate=3",
            "--set=optimizer.adagrad.initial_accumulator=0.1",
            "--set=checkpoint.every_steps=8",
        )
        self.assertLess(metrics["eval"]["step"], metrics["steps"])
        model, _ = self.export()
        self.assertEqual(model.digest(), metrics["digest"])
        self.assertAlmostEqual(logloss(samples, model.deepfm), metrics["eval"]["logloss"], places=4)

    def test_safetensors_files_have_the_same_arrays(self):
        self.write_libsvm_job()
        self.train("--set=epochs=1")
        model, _ = self.export()
        tensors = self.path("tensors")
        code, _, err = self.pawlctl(
            "export",
            "--checkpoint=" + self.checkpoints,
            "--out=" + tensors,
            "--format=safetensors",
        )
        self.assertEqual((code, err), (0, ""))
        with open(os.path.join(tensors, "model.json"), encoding="utf-8") as file:
            description = json.load(file)
        self.assertEqual((description["arrays"], model.json["arrays"]), ("safetensors", "npy"))
        names = [table["name"] for table in description["tables"]]
        self.assertEqual(set(names), set(model.dense) | set(model.sparse))
        for table in description["tables"]:
            found, metadata = read_safetensors(os.path.join(tensors, table["file"]))
            self.assertEqual(metadata, {"table": table["name"]})
            if table["kind"] == "dense":
                self.assertEqual(found, {"values": model.dense[table["name"]]})
                continue
            (count, width), values = found["rows"]
            rows = {
                key: values[i * width : (i + 1) * width] for i, key in enumerate(found["keys"][1])
            }
            self.assertEqual(list(found["keys"][1]), sorted(rows))
            self.assertEqual(found["keys"][0], (count,))
            self.assertEqual(rows, model.sparse[table["name"]])
        files = {table["file"] for table in description["tables"]} | {"model.json"}
        self.assertEqual(files, set(os.listdir(tensors)))

    def test_error_says_what_to_do(self):
        self.write_libsvm_job()
        self.train("--set=epochs=1")
        checkpoint = "--checkpoint=" + self.checkpoints
        out = "--out=" + self.model
        for arguments, wanted, words in (
            ((out,), 2, "--checkpoint=FOLDER is missing"),
            ((checkpoint,), 2, "--out=FOLDER is missing"),
            ((checkpoint, out, "--format=onnx"), 2, "choose from npy, safetensors"),
            (
                ("--checkpoint=" + self.path("nowhere"), out),
                2,
                self.path("nowhere") + " is no complete checkpoint",
            ),
            ((checkpoint, "--out=" + self.folder), 2, "already exists; name another folder"),
            ((checkpoint, "--out=" + self.path("not/there")), 2, "not/there"),
        ):
            code, text, err = self.pawlctl("export", *arguments)
            self.assertEqual((code, text), (wanted, ""), err)
            self.assertIn(words, err)
        (name,) = os.listdir(self.checkpoints)
        part = os.path.join(self.checkpoints, name, "p3.part")
        with open(part, "r+b") as file:
            file.seek(50)
            byte = file.read(1)
            file.seek(50)
            file.write(bytes([byte[0] ^ 1]))
        code, text, err = self.pawlctl("export", checkpoint, out)
        self.assertEqual((code, text), (1, ""), err)
        self.assertIn(part + " is damaged at offset", err)
        self.assertFalse([entry for entry in os.listdir(self.folder) if entry.startswith("model")])


if __name__ == "__main__":
    TrainingTest.PAWLCTL = os.path.abspath(sys.argv.pop(1))
    unittest.main()
