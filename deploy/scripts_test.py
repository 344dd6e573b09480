#!/usr/bin/env python3
"""Tests of the scripts in deploy/."""

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
# Also outside of Bazel, the tests leave no files in the project.
FOLDER = os.environ.get("TEST_TMPDIR") or tempfile.mkdtemp()


def load(name):
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(HERE, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def test_event(label, status):
    return {"id": {"testSummary": {"label": label}}, "testSummary": {"overallStatus": status}}


def completed(label, success):
    return {"id": {"targetCompleted": {"label": label}}, "completed": {"success": success}}


def finished(success, name):
    return {
        "id": {"buildFinished": {}},
        "finished": {"overallSuccess": success, "exitCode": {"name": name}},
    }


class PlotCurvesTest(unittest.TestCase):
    def curve(self, name, points, torn=""):
        path = os.path.join(FOLDER, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(json.dumps(point) + "\n" for point in points) + torn)
        return path

    def run_script(self, *arguments):
        done = subprocess.run(
            [sys.executable, os.path.join(HERE, "plot_curves"), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    def rows(self, path):
        with open(path, encoding="utf-8") as file:
            return [line.strip().split(",") for line in file][1:]

    def test_seeds_become_a_median_with_its_range_where_all_have_values(self):
        seeds = [
            # At samples 0, 10, 20; 5, 15, 25; 0 to 30.
            [{"samples": 10 * i, "auc": 0.5 + 0.1 * i} for i in range(3)],
            [{"samples": 5 + 10 * i, "auc": 0.6 + 0.1 * i} for i in range(3)],
            [{"samples": 30 * i, "auc": 0.9} for i in range(2)],
        ]
        files = [
            self.curve("seed-%d.jsonl" % i, points, torn='{"samples": 99, "au')
            for i, points in enumerate(seeds)
        ]
        table = os.path.join(FOLDER, "seeds.csv")
        code, err = self.run_script(
            "--scores=auc", "--against=samples", table, "adagrad=" + ",".join(files)
        )
        self.assertEqual((code, err), (0, ""))
        rows = self.rows(table)
        self.assertEqual([row[:3] for row in rows[:1]], [["auc", "samples", "adagrad"]])
        figures = {float(row[3]): [round(float(x), 9) for x in row[4:]] for row in rows}
        self.assertEqual(
            figures,
            {
                5.0: [0.6, 0.55, 0.9],
                10.0: [0.65, 0.6, 0.9],
                15.0: [0.7, 0.65, 0.9],
                20.0: [0.75, 0.7, 0.9],
            },
        )

    def test_null_and_points_without_the_score_are_left_out(self):
        path = self.curve(
            "nulls.jsonl",
            [
                {"train_s": 1, "loss": None},
                {"train_s": 2, "auc": 0.5},
                {"train_s": 3, "loss": 0.25},
                {"train_s": 3, "loss": 0.125},
            ],
        )
        table = os.path.join(FOLDER, "nulls.csv")
        code, err = self.run_script("--scores=loss", "--against=train_s", table, "run=" + path)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(
            self.rows(table), [["loss", "train_s", "run", "3.0", "0.125", "0.125", "0.125"]]
        )

    def test_long_curves_are_thinned(self):
        points = [{"step": i, "loss": float(i)} for i in range(5000)]
        rows = load("plot_curves").summarize([[(p["step"], p["loss"]) for p in points]] * 2)
        self.assertEqual(len(rows), load("plot_curves").PLACES)
        self.assertEqual((rows[0][0], rows[-1][0]), (0, 4999))
        self.assertTrue(all(abs(median - place) < 1e-9 for place, median, _, _ in rows))

    def test_what_is_missing_is_named(self):
        path = self.curve("short.jsonl", [{"step": 1, "samples": 2, "train_s": 1, "loss": 0.5}])
        for arguments, code, text in (
            (("out.csv", "/nowhere.jsonl"), 1, "/nowhere.jsonl"),
            (("--scores=loss,gauc", os.path.join(FOLDER, "out.csv"), path), 1, "gauc"),
            (("out.txt", path), 2, "PICTURE"),
            (("--against=weeks", "out.csv", path), 2, "weeks"),
        ):
            with self.subTest(arguments=arguments):
                found, err = self.run_script(*arguments)
                self.assertEqual(found, code, err)
                self.assertIn(text, err)

    def test_picture_is_drawn_with_matplotlib_and_refused_without(self):
        points = [{"train_s": i, "samples": 9 * i, "loss": 1 / (i + 1)} for i in range(5)]
        picture = os.path.join(FOLDER, "curve.svg")
        code, err = self.run_script(
            "--scores=loss", picture, "some-run=" + self.curve("drawn.jsonl", points)
        )
        if importlib.util.find_spec("matplotlib") is None:
            self.assertEqual(code, 1)
            self.assertIn("python3-matplotlib", err)
            return
        self.assertEqual((code, err), (0, ""))
        with open(picture, encoding="utf-8") as file:
            self.assertIn("<svg", file.read())


class TimelineTest(unittest.TestCase):
    SAMPLES = [
        {"unix_s": 100.0 + t, "samples": 1000 * t, "servers": 3, "workers": 2 + (t > 5)}
        for t in range(11)
    ]

    def test_throughput_is_samples_over_time(self):
        self.assertEqual(
            {round(rate) for _, rate in load("timeline").throughput(self.SAMPLES)}, {1000}
        )

    def test_events_are_dots_with_a_description(self):
        events = [
            {
                "number": 1,
                "unix_ms": 103000,
                "kind": "NODE_DIED",
                "node": "server-1",
                "text": "kill <9>",
            },
            {
                "number": 2,
                "unix_ms": 104000,
                "kind": "PRIMARY_MOVED",
                "node": "server-2",
                "from": "server-0",
                "partition": 7,
                "pause_ms": 12,
            },
            {"number": 3, "unix_ms": 90000, "kind": "NODE_JOINED", "node": "server-0"},
        ]
        picture = load("timeline").draw(self.SAMPLES, events)
        self.assertEqual(picture.count("<circle"), 2)
        self.assertIn("3.0 s: node died, server-1, kill &lt;9&gt;", picture)
        self.assertIn(
            "4.0 s: primary moved, server-2, from server-0, partition 7, paused 12 ms", picture
        )
        self.assertIn(">3+2<", picture)
        self.assertIn(">3+3<", picture)

    def test_record_is_drawn_again(self):
        folder = FOLDER
        record, picture = os.path.join(folder, "record.jsonl"), os.path.join(folder, "picture.svg")
        with open(record, "w") as out:
            for sample in self.SAMPLES:
                out.write(json.dumps({"sample": sample}) + "\n")
        subprocess.run([os.path.join(HERE, "timeline"), "--from=" + record, picture], check=True)
        with open(picture) as drawn:
            self.assertEqual(drawn.read(), load("timeline").draw(self.SAMPLES, []))

    # Instead of pawlctl: reads its answer to the N-th status from the file status-N beside it, the
    # last one again and again. An empty file is a failed call.
    PAWLCTL = r"""#!/bin/bash
cd "$(dirname "$0")"
if [[ "$1" == events ]]; then
  echo '{"number": 1, "unix_ms": 1000, "kind": "NODE_JOINED", "node": "server-0"}'
  exit 0
fi
call=$(($(cat calls 2> /dev/null) + 1))
if [[ ! -e "status-$call" ]]; then call=$((call - 1)); fi
echo "$call" > calls
[[ -s "status-$call" ]] && cat "status-$call"
"""

    def start_recording(self, *states):
        """Starts a recording of a job with these states, one a call; "": the call fails. A state
        "RUNNING 3/4" has done 3 of 4 steps."""
        folder = tempfile.mkdtemp(dir=FOLDER)
        pawlctl = os.path.join(folder, "pawlctl")
        with open(pawlctl, "w") as out:
            out.write(self.PAWLCTL)
        os.chmod(pawlctl, 0o755)
        for i, state in enumerate(states):
            with open(os.path.join(folder, "status-%d" % (i + 1)), "w") as out:
                if state:
                    name, _, done = state.partition(" ")
                    steps, _, steps_total = (done or "0/0").partition("/")
                    status = {"nodes": [], "samples": 100 * i, "state": name}
                    status.update(steps=int(steps), steps_total=int(steps_total))
                    json.dump(status, out)
        process = subprocess.Popen(
            [
                os.path.join(HERE, "timeline"),
                "--scheduler=127.0.0.1:1",
                "--interval=0.01",
                os.path.join(folder, "picture.svg"),
            ],
            env=dict(os.environ, PAWLCTL=pawlctl),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, folder

    def recorded(self, folder):
        return load("timeline").load(os.path.join(folder, "picture.jsonl"))

    def test_failed_call_does_not_end_the_recording(self):
        process, folder = self.start_recording("RUNNING", "", "", "RUNNING", "COMPLETED")
        self.assertEqual(process.wait(60), 0)
        samples, events = self.recorded(folder)
        self.assertEqual([sample["samples"] for sample in samples], [0, 300, 400])
        self.assertEqual([event["number"] for event in events], [1])
        self.assertTrue(os.path.exists(os.path.join(folder, "picture.svg")))

    def test_silence_of_a_job_that_was_about_to_end_ends_the_recording_soon(self):
        for states in (("RUNNING 1/4", "RUNNING 4/4", ""), ("RUNNING 1/4", "FINISHING 2/4", "")):
            with self.subTest(states=states):
                process, folder = self.start_recording(*states)
                # A job in the middle of its work is given a minute.
                _, err = process.communicate(timeout=40)
                self.assertEqual((process.returncode, err), (0, ""))
                self.assertTrue(os.path.exists(os.path.join(folder, "picture.svg")))

    def test_sigterm_draws_what_was_recorded(self):
        process, folder = self.start_recording("RUNNING")
        record = os.path.join(folder, "picture.jsonl")
        end = time.monotonic() + 60
        while not os.path.exists(record) or len(self.recorded(folder)[0]) < 2:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        process.terminate()
        self.assertEqual(process.wait(60), 0)
        self.assertTrue(os.path.exists(os.path.join(folder, "picture.svg")))

    def test_one_sample_is_nothing_to_draw(self):
        self.assertIsNone(load("timeline").draw(self.SAMPLES[:1], []))


class SummarizeTestsTest(unittest.TestCase):
    def summarize(self, *events):
        return load("summarize_tests").summarize([json.dumps(event) for event in events])

    def test_counts_tests_by_their_summary(self):
        tests, broken = self.summarize(
            completed("//a:t", True),
            test_event("//a:t", "FAILED"),
            test_event("//a:u", "PASSED"),
            finished(False, "TESTS_FAILED"),
        )
        self.assertEqual(tests, {"//a:t": "FAILED", "//a:u": "PASSED"})
        self.assertEqual(broken, {})

    def test_target_that_cannot_be_built_is_counted_once(self):
        tests, broken = self.summarize(
            completed("//a:t", False),
            test_event("//a:t", "NO_STATUS"),
            finished(False, "BUILD_FAILURE"),
        )
        self.assertEqual(tests, {})
        self.assertEqual(list(broken), ["//a:t"])

    def test_aborted_run_has_failed(self):
        self.assertIn("bazel", self.summarize(test_event("//a:u", "PASSED"))[1])

    def test_failure_without_a_target_is_a_failure(self):
        self.assertIn(
            "bazel",
            self.summarize(test_event("//a:u", "PASSED"), finished(False, "PARSING_FAILURE"))[1],
        )
        self.assertEqual(
            self.summarize(test_event("//a:u", "PASSED"), finished(True, "SUCCESS"))[1], {}
        )

    def test_last_line_has_the_counts(self):
        path = os.path.join(FOLDER, "events.json")
        for statuses, line, code in (
            (("PASSED", "FLAKY"), "2 passed, 0 failed", 0),
            (("PASSED", "TIMEOUT"), "1 passed, 1 failed", 1),
            ((), "0 passed, 0 failed", 1),
        ):
            success = "TIMEOUT" not in statuses
            with open(path, "w", encoding="utf-8") as file:
                for number, status in enumerate(statuses):
                    file.write(json.dumps(test_event("//a:t%d" % number, status)) + "\n")
                file.write(
                    json.dumps(finished(success, "SUCCESS" if success else "TESTS_FAILED")) + "\n"
                )
            done = subprocess.run(
                [os.path.join(HERE, "summarize_tests"), path],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            self.assertEqual((done.stdout.splitlines()[-1], done.returncode), (line, code))

    def test_test_that_passes_in_second_run_counts_as_passed(self):
        paths = [os.path.join(FOLDER, name) for name in ("first.json", "second.json")]
        first = [
            test_event("//a:t", "FAILED"),
            test_event("//a:u", "FAILED"),
            test_event("//a:v", "PASSED"),
            finished(False, "TESTS_FAILED"),
        ]
        second = [
            test_event("//a:t", "PASSED"),
            test_event("//a:u", "FAILED"),
            finished(False, "TESTS_FAILED"),
        ]
        for path, events in zip(paths, (first, second)):
            with open(path, "w", encoding="utf-8") as file:
                file.write("".join(json.dumps(event) + "\n" for event in events))
        script = os.path.join(HERE, "summarize_tests")
        done = subprocess.run(
            [script, "--failed_tests", paths[0]],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        self.assertEqual(done.stdout.split(), ["//a:t", "//a:u"])
        done = subprocess.run(
            [script] + paths, capture_output=True, text=True, timeout=60, check=False
        )
        self.assertEqual(
            (done.stdout.splitlines(), done.returncode),
            (
                [
                    "failed at first, passed when run again alone: //a:t",
                    "failed: //a:u (failed)",
                    "2 passed, 1 failed",
                ],
                1,
            ),
        )


class UsageTest(unittest.TestCase):
    def run_script(self, *command):
        return subprocess.run(
            [os.path.join(HERE, command[0])] + list(command[1:]),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def test_help_is_printed(self):
        for script in (
            "install_packages",
            "plot_curves",
            "test",
            "quickstart",
            "chaos",
            "timeline",
            "bench/run",
            "data/fetch",
            "data/generate_clicks",
            "reference/generate",
            "tls/make_certificates",
        ):
            with self.subTest(script=script):
                done = self.run_script(script, "--help")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("Usage: deploy/%s" % script, done.stdout)
                self.assertIn("Exit codes:", done.stdout)

    def test_wrong_argument_exits_with_2(self):
        for script in (
            "install_packages",
            "plot_curves",
            "test",
            "quickstart",
            "chaos",
            "reference/generate",
            "tls/make_certificates",
        ):
            with self.subTest(script=script):
                done = self.run_script(script, "nonsense")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("'nonsense'", done.stderr)

    def test_unknown_job_exits_with_2(self):
        done = self.run_script("quickstart", "--job=nonsense")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("'nonsense'", done.stderr)

    def make_certificates(self, *flags):
        return self.run_script("tls/make_certificates", *flags)

    def openssl(self, *arguments):
        return subprocess.run(
            ["openssl", *arguments], capture_output=True, text=True, timeout=60, check=True
        ).stdout

    def test_certificates_have_the_names_and_the_validity_that_are_asked_for(self):
        out = os.path.join(FOLDER, "tls")
        done = self.make_certificates(
            "--out=" + out,
            "--job=a-job",
            "--trust_domain=example.org",
            "--roles=server/rack-1,reader",
            "--hosts=10.0.0.2,db.example.org",
            "--days=3",
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(sorted(os.listdir(out)), ["authority", "reader", "server"])
        folder = os.path.join(out, "server", "rack-1")
        self.assertEqual(sorted(os.listdir(folder)), ["ca.pem", "cert.pem", "key.pem"])
        certificate = os.path.join(folder, "cert.pem")
        names = self.openssl("x509", "-in", certificate, "-noout", "-ext", "subjectAltName")
        self.assertIn("URI:spiffe://example.org/pawl/a-job/server/rack-1", names)
        self.assertIn("IP Address:10.0.0.2, DNS:db.example.org", names)
        self.openssl("verify", "-CAfile", os.path.join(folder, "ca.pem"), certificate)
        # It begins an hour ago, for machines whose clocks are behind.
        for minutes, code in ((-70, 2), (-50, 0), (3 * 24 * 60 - 5, 0), (3 * 24 * 60 + 5, 2)):
            at = str(int(time.time()) + 60 * minutes)
            done = subprocess.run(
                ["openssl", "verify", "-attime", at, "-CAfile", os.path.join(folder, "ca.pem")]
                + [certificate],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            self.assertEqual(done.returncode, code, (minutes, done.stdout, done.stderr))
        for folder, _, files in os.walk(out):
            self.assertEqual(os.stat(folder).st_mode & 0o077, 0, folder)
            for name in files:
                self.assertEqual(os.stat(os.path.join(folder, name)).st_mode & 0o077, 0, name)

    def test_wrong_names_make_no_certificate(self):
        out = "--out=" + os.path.join(FOLDER, "no-tls")
        for flags, part in (
            (["--job=a"], "--out"),
            ([out], "--job"),
            ([out, "--job=a/b"], "--job=a/b"),
            ([out, "--job=a", "--roles=admin"], "'admin'"),
            ([out, "--job=a", "--days=soon"], "--days=soon"),
            # No part is expanded, and none adds lines to a certificate or to openssl's settings.
            ([out, "--job=a", "--roles=*"], "'*'"),
            ([out, "--job=a", "--roles=server/.."], "'server/..'"),
            ([out, "--job=a", "--hosts=*"], "'*'"),
            ([out, "--job=a", "--hosts=a;b"], "'a;b'"),
            ([out, "--job=a", "--hosts=a\nbasicConstraints=CA:TRUE"], "one line"),
            ([out + "$HOME", "--job=a"], "$HOME"),
            ([out, "--job=a", "--token_key=a/b"], "--token_key=a/b"),
            ([out, "--job=a", "--revoke_token=a b"], "--revoke_token=a b"),
            ([out, "--job=a", "--token_key=a", "--revoke_token=b"], "only one"),
            ([out + "-2", "--job=a", "--revoke=/etc/hostname"], "has no authority"),
        ):
            with self.subTest(flags=flags):
                done = self.make_certificates(*flags)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(part, done.stderr)

    def test_each_list_of_revoked_certificates_is_newer(self):
        out = os.path.join(FOLDER, "revoked")
        flags = ["--out=" + out, "--job=a", "--roles=reader,server"]
        self.assertEqual(self.make_certificates(*flags).returncode, 0)
        # Revoked again: the list is written for roles that lack it.
        for role in ("reader", "server", "server"):
            done = self.make_certificates(*flags, "--revoke=%s/%s/cert.pem" % (out, role))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        lists = sorted(os.listdir(os.path.join(out, "server", "crl")))
        self.assertEqual([name.rpartition(".")[2] for name in lists], ["r0", "r1", "r2"])
        times = [
            time.strptime(
                self.openssl(
                    "crl", "-noout", "-lastupdate", "-in", os.path.join(out, "server/crl", name)
                ).strip(),
                "lastUpdate=%b %d %H:%M:%S %Y GMT",
            )
            for name in lists
        ]
        self.assertLess(times[0], times[1])
        self.assertLess(times[1], times[2])

    def test_folders_and_names_are_not_expanded(self):
        out = os.path.join(FOLDER, "a folder")
        done = self.make_certificates(
            "--out=" + out, "--job=a", "--roles=server", "--hosts=::1,db-1.example,10.0.0.2"
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        names = self.openssl(
            "x509", "-noout", "-ext", "subjectAltName", "-in", os.path.join(out, "server/cert.pem")
        )
        self.assertIn("IP Address:0:0:0:0:0:0:0:1, DNS:db-1.example, IP Address:10.0.0.2", names)

    def test_files_that_exist_get_private(self):
        out = os.path.join(FOLDER, "loose")
        flags = ["--out=" + out, "--job=a", "--roles=server,operator"]
        key = os.path.join(out, "server", "key.pem")
        os.makedirs(os.path.join(out, "server"), mode=0o755)
        os.makedirs(os.path.join(out, "authority"), mode=0o755)
        with open(key + ".new", "w", encoding="ascii"):
            os.chmod(key + ".new", 0o644)
        self.assertEqual(self.make_certificates(*flags).returncode, 0)
        for path in (key, os.path.join(out, "server"), os.path.join(out, "authority")):
            self.assertEqual(os.stat(path).st_mode & 0o077, 0, path)

    def test_token_keys_go_to_operators_and_public_keys_to_daemons(self):
        out = os.path.join(FOLDER, "tokens")
        flags = ["--out=" + out, "--job=a", "--roles=scheduler,server/rack-1,worker,operator"]
        self.assertEqual(self.make_certificates(*flags).returncode, 0)
        listing = {}
        for _ in range(2):
            # The second call takes the same key.
            done = self.make_certificates(*flags, "--token_key=team")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            found = {}
            for folder, _, files in os.walk(out):
                if os.path.basename(folder) != "tokens":
                    continue
                self.assertEqual(os.stat(folder).st_mode & 0o077, 0, folder)
                for name in files:
                    path = os.path.join(folder, name)
                    self.assertEqual(os.stat(path).st_mode & 0o077, 0, path)
                    with open(path, encoding="ascii") as file:
                        found[os.path.relpath(path, out)] = file.read()
            self.assertIn(listing, ({}, found))
            listing = found
        self.assertEqual(
            sorted(listing),
            [
                "authority/tokens/team.key.pem",
                "authority/tokens/team.pub.pem",
                "operator/tokens/team.key.pem",
                "scheduler/tokens/team.pub.pem",
                "server/rack-1/tokens/team.pub.pem",
            ],
        )
        self.assertIn("PRIVATE KEY", listing["operator/tokens/team.key.pem"])
        self.assertIn("PUBLIC KEY", listing["scheduler/tokens/team.pub.pem"])
        for token in ("a1", "a1", "b2"):
            done = self.make_certificates(*flags, "--revoke_token=" + token)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        with open(os.path.join(out, "server/rack-1/tokens/revoked"), encoding="ascii") as file:
            self.assertEqual(file.read(), "a1\nb2\n")
        done = self.make_certificates(
            "--out=" + out, "--job=a", "--roles=server", "--revoke_token=a1"
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("has no tokens/", done.stderr)

    def test_clicks_depend_on_arguments_only(self):
        folder = FOLDER
        made = []
        for name, seed in (("a", 1), ("b", 1), ("c", 2)):
            path = os.path.join(folder, name + ".libsvm")
            self.assertEqual(
                self.run_script(
                    "data/generate_clicks", "--samples=50", "--seed=%d" % seed, path
                ).returncode,
                0,
            )
            with open(path, encoding="ascii") as file:
                made.append(file.read())
        self.assertEqual(made[0], made[1])
        self.assertNotEqual(made[0], made[2])
        for line in made[0].splitlines():
            self.assertRegex(line, r"^[01]( \d+:1){6}$")

    def test_no_package_is_listed_twice(self):
        packages = self.run_script("install_packages", "--with-clang", "--list").stdout.split()
        self.assertIn("bazel-bootstrap", packages)
        self.assertEqual(len(packages), len(set(packages)))

    def test_complete_toolkit_is_used(self):
        home = os.path.join(FOLDER, "toolkit")
        for file in (
            "bin/nvcc",
            "include/cuda_runtime.h",
            "include/cublas_v2.h",
            "include/nccl.h",
            "lib64/libcudart_static.a",
            "lib64/libcublas.so",
            "lib64/libnccl.so",
        ):
            os.makedirs(os.path.dirname(os.path.join(home, file)), exist_ok=True)
            open(os.path.join(home, file), "w", encoding="ascii").close()
        done = self.install_cuda(CUDA_HOME=home)
        self.assertIn("are in %s\n" % home, done.stdout)
        # An incomplete one is not. HOME cannot be written, which keeps this test from downloading.
        os.remove(os.path.join(home, "include/nccl.h"))
        done = self.install_cuda(CUDA_HOME=home)
        self.assertNotIn("are in %s\n" % home, done.stdout)

    def install_cuda(self, **environment):
        """Runs only install_cuda, since Debian's packages may be missing on this machine."""
        with open(os.path.join(HERE, "install_packages"), encoding="utf-8") as file:
            script = file.read().split("list_only=")[0] + "install_cuda\n"
        return subprocess.run(
            ["bash", "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "HOME": "/dev/null", **environment},
        )

    def test_wheels_of_cuda_are_pinned(self):
        packages = self.run_script("install_packages", "--with-cuda", "--list").stdout.split()
        wheels = [package for package in packages if package.startswith("nvidia-")]
        self.assertEqual(len(wheels), 7)
        for wheel in wheels:
            self.assertRegex(wheel, r"^nvidia-[a-z0-9-]+==[0-9.]+$")


if __name__ == "__main__":
    unittest.main()
