#!/usr/bin/env python3
"""Tests of deploy/kubernetes, deploy/slurm and deploy/systemd, without these systems.

The tests pass every flag in these files to its program, compare numbers that must agree, and run
the scripts with real daemons, and with commands that imitate Slurm's on one machine."""

import glob
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import yaml

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
BIN_FOLDER = sys.argv.pop(1)
PROGRAMS = {
    "pawl-scheduler": "scheduler/pawl-scheduler",
    "pawl-server": "server/pawl-server",
    "pawl-worker": "worker/pawl-worker",
    "pawlctl": "deploy/pawlctl/pawlctl",
}
PATIENCE_S = 60


def program(name):
    return os.path.join(BIN_FOLDER, PROGRAMS[name])


def flags_are_known(test, name, flags):
    """Runs the program with the flags and --version: it checks the flags and exits."""
    done = subprocess.run(
        [program(name)] + flags + ["--version"], capture_output=True, text=True, timeout=PATIENCE_S
    )
    test.assertEqual(done.returncode, 0, "%s %s\n%s" % (name, " ".join(flags), done.stderr))


ROLES = {"pawl-scheduler": "scheduler", "pawl-server": "server", "pawl-worker": "worker"}


def environment(**more):
    """This test's environment without settings for Pawl, and with `more`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PAWL_")}
    return dict(kept, **more)


def make_certificates(folder, *flags):
    subprocess.run(
        [
            os.path.join(HERE, "tls", "make_certificates"),
            "--out=" + folder,
            "--job=test",
            "--roles=scheduler,server,worker,operator",
        ]
        + list(flags),
        check=True,
        timeout=PATIENCE_S,
    )


def refuses_without_certificate(test, name, flags, folder):
    """Runs the program with a launcher's flags and no certificate: it must refuse to start."""
    job = os.path.join(folder, "job.pbtxt")
    with open(job, "w", encoding="utf-8") as file:
        file.write('name: "tables"')
    flags = [
        re.sub("^--job=.*", "--job=" + job, flag.replace("/var/lib/pawl", folder)) for flag in flags
    ]
    done = subprocess.run(
        [program(name)] + flags,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment(),
    )
    test.assertEqual(done.returncode, 2, "%s %s\n%s" % (name, " ".join(flags), done.stderr))
    test.assertIn("neither encrypted nor authenticated", done.stderr)


def accepts_certificate(test, command, folder):
    """Runs a pawlctl command that finds nothing at port 1: its flags and certificate are right."""
    done = subprocess.run(
        [program(command[0])] + [re.sub(r":\d+$", ":1", word) for word in command[1:]],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment(PAWL_TLS_DIR=folder),
    )
    test.assertEqual(done.returncode, 3, "%s\n%s" % (" ".join(command), done.stderr))


def wait_for(what, look):
    end = time.monotonic() + PATIENCE_S
    while not look():
        if time.monotonic() > end:
            raise AssertionError("%s: not within %d s" % (what, PATIENCE_S))
        time.sleep(0.05)


def text_of(*path):
    with open(os.path.join(HERE, *path), encoding="utf-8") as file:
        return file.read()


class KubernetesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.objects = {}
        for path in glob.glob(os.path.join(HERE, "kubernetes", "*.yaml")):
            for found in yaml.safe_load_all(text_of("kubernetes", os.path.basename(path))):
                if "metadata" in found:
                    cls.objects[found["kind"], found["metadata"]["name"]] = found

    def container(self, kind, name):
        pod = self.objects[kind, name]["spec"]["template"]["spec"]
        self.assertEqual(len(pod["containers"]), 1)
        return pod, pod["containers"][0]

    def flags(self, kind, name):
        _, container = self.container(kind, name)
        values = {"$(POD_IP)": "127.0.0.1", "$(NODE_NAME)": "node-1"}
        flags = {}
        for flag in container["args"]:
            for variable, value in values.items():
                if variable in flag:
                    self.assertIn(variable[2:-1], [each["name"] for each in container["env"]])
                flag = flag.replace(variable, value)
            key, _, value = flag.partition("=")
            flags[key] = value
        return flags

    WORKLOADS = {"pawl-scheduler": "Job", "pawl-server": "StatefulSet", "pawl-worker": "Deployment"}

    def test_programs_know_their_flags(self):
        for name, kind in self.WORKLOADS.items():
            _, container = self.container(kind, name)
            self.assertEqual(container["command"][-1], name)
            flags_are_known(
                self, name, [flag.replace("$(POD_IP)", "127.0.0.1") for flag in container["args"]]
            )

    def test_repeated_numbers_agree(self):
        scheduler = self.flags("Job", "pawl-scheduler")
        self.assertEqual(
            int(scheduler["--servers"]),
            self.objects["StatefulSet", "pawl-server"]["spec"]["replicas"],
        )
        self.assertEqual(
            int(scheduler["--workers"]),
            self.objects["Deployment", "pawl-worker"]["spec"]["replicas"],
        )
        at_least = self.objects["HorizontalPodAutoscaler", "pawl-server"]["spec"]["minReplicas"]
        self.assertGreaterEqual(at_least, int(scheduler["--servers"]))
        pod, _ = self.container("StatefulSet", "pawl-server")
        drain_s = int(self.flags("StatefulSet", "pawl-server")["--drain_timeout_s"])
        self.assertGreater(pod["terminationGracePeriodSeconds"], drain_s)

    def test_probes_and_services_use_the_programs_ports(self):
        for name, kind in self.WORKLOADS.items():
            _, container = self.container(kind, name)
            flags = self.flags(kind, name)
            ports = {
                port["name"]: port["containerPort"] for port in container.get("ports", [])
            }
            listened = {
                int(flags[flag].rpartition(":")[2])
                for flag in ("--listen", "--metrics_listen")
                if flag in flags
            }
            for port in listened:
                if "127.0.0.1:%d" % port not in flags.values():
                    self.assertIn(port, ports.values(), name)
            self.assertLessEqual(set(ports.values()), listened, name)
            for probe in ("readinessProbe", "livenessProbe"):
                if probe in container:
                    address = container[probe]["exec"]["command"][2].partition("=")[2]
                    self.assertRegex(address, "^127.0.0.1:")
                    self.assertIn(int(address.rpartition(":")[2]), listened)
            if ("Service", name) in self.objects:
                service = self.objects["Service", name]["spec"]
                for port in service["ports"]:
                    self.assertEqual(ports[port["targetPort"]], port["port"])
                labels = self.objects[kind, name]["spec"]["template"]["metadata"]["labels"]
                self.assertLessEqual(service["selector"].items(), labels.items())
        server, worker = self.flags("StatefulSet", "pawl-server"), self.flags(
            "Deployment", "pawl-worker"
        )
        for flags in (server, worker):
            host, _, port = flags["--scheduler"].partition(":")
            self.assertIn(
                int(port), [each["port"] for each in self.objects["Service", host]["spec"]["ports"]]
            )

    def test_mounted_volumes_exist(self):
        made = yaml.safe_load(text_of("kubernetes", "kustomization.yaml"))
        for path in made["resources"]:
            self.assertTrue(os.path.exists(os.path.join(HERE, "kubernetes", path)), path)
        files = {each["name"]: each["files"] for each in made["configMapGenerator"]}
        for paths in files.values():
            for path in paths:
                self.assertTrue(os.path.exists(os.path.join(HERE, "kubernetes", path)), path)
        for name, kind in self.WORKLOADS.items():
            pod, container = self.container(kind, name)
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            claims = self.objects[kind, name]["spec"].get("volumeClaimTemplates", [])
            known = set(volumes) | {claim["metadata"]["name"] for claim in claims}
            self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, known, name)
            for volume in volumes.values():
                if "persistentVolumeClaim" in volume:
                    self.assertIn(
                        ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]),
                        self.objects,
                    )
                if "configMap" in volume:
                    self.assertIn(volume["configMap"]["name"], files)

    def secret_of(self, kind, name, mount_path):
        """The secret that the workload's container has at the path."""
        pod, container = self.container(kind, name)
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        # Kubernetes does not update a file that is mounted by itself.
        self.assertNotIn("subPath", mounts[mount_path])
        volume = [one for one in pod["volumes"] if one["name"] == mounts[mount_path]["name"]][0]
        return volume["secret"]

    def test_every_pod_uses_tls(self):
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        make_certificates(os.path.join(folder, "tls"))
        for name, kind in self.WORKLOADS.items():
            pod, container = self.container(kind, name)
            flags = [flag.replace("$(POD_IP)", "127.0.0.1") for flag in container["args"]]
            self.assertNotIn("--insecure", flags)
            refuses_without_certificate(self, name, flags, folder)
            environment_of_pod = {one["name"]: one.get("value") for one in container["env"]}
            secret = self.secret_of(kind, name, environment_of_pod["PAWL_TLS_DIR"])
            self.assertEqual(secret["secretName"], "pawl-tls-" + ROLES[name])
            self.assertEqual(
                pod["securityContext"]["fsGroup"], pod["securityContext"]["runAsGroup"]
            )
            # A volume as the kubelet makes it: links to files with the secret's mode.
            made = os.path.join(folder, "tls", ROLES[name])
            content = {"tls.crt": "cert.pem", "tls.key": "key.pem", "ca.crt": "ca.pem"}
            mounted = os.path.join(folder, "mounted-" + name)
            os.makedirs(os.path.join(mounted, "..data"))
            for item in secret["items"]:
                place = os.path.join(mounted, "..data", item["path"])
                shutil.copyfile(os.path.join(made, content[item["key"]]), place)
                os.chmod(place, secret["defaultMode"])
                os.symlink("..data/" + item["path"], os.path.join(mounted, item["path"]))
            for probe in ("readinessProbe", "livenessProbe"):
                if probe in container:
                    accepts_certificate(self, container[probe]["exec"]["command"], mounted)

    def test_certificates_have_the_roles_that_pods_mount(self):
        mounted = {
            self.secret_of(kind, name, "/etc/pawl/tls")["secretName"]
            for name, kind in self.WORKLOADS.items()
        }
        operator = self.secret_of("Job", "pawl-scheduler", "/etc/pawl/operator")
        mounted.add(operator["secretName"])
        job = re.search('^name: "(.*)"', text_of("kubernetes", "job.pbtxt"), re.M).group(1)
        made = set()
        for (kind, name), found in self.objects.items():
            if kind == "Certificate" and not found["spec"].get("isCA"):
                made.add(found["spec"]["secretName"])
                self.assertEqual(
                    found["spec"]["uris"],
                    ["spiffe://pawl.local/pawl/%s/%s" % (job, name[len("pawl-tls-") :])],
                )
                issuer = self.objects["Issuer", found["spec"]["issuerRef"]["name"]]
                authority = self.objects["Certificate", issuer["spec"]["ca"]["secretName"]]
                self.assertTrue(authority["spec"]["isCA"])
        self.assertEqual(made, mounted)
        by_hand = re.search("for role in (.*); do", text_of("kubernetes", "README.md")).group(1)
        self.assertEqual({"pawl-tls-" + role for role in by_hand.split()}, mounted)

    def test_job_file_is_valid(self):
        done = subprocess.run(
            [
                os.path.join(BIN_FOLDER, "deploy/check_job"),
                os.path.join(HERE, "kubernetes/job.pbtxt"),
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)


class LaunchersTest(unittest.TestCase):
    def test_no_launcher_turns_tls_off(self):
        found = 0
        for folder in ("kubernetes", "slurm", "systemd"):
            for path in sorted(glob.glob(os.path.join(HERE, folder, "*"))):
                if path.endswith(".md"):
                    continue
                found += 1
                for line in text_of(folder, os.path.basename(path)).splitlines():
                    self.assertNotIn("--insecure", line.split("#")[0], path)
        self.assertGreater(found, 10)


class RunNodeTest(unittest.TestCase):
    SCRIPT = os.path.join(HERE, "kubernetes", "run-node")

    def start(self, command):
        node = subprocess.Popen(
            ["sh", self.SCRIPT, "sh", "-c", command], stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(node.stdout.close)
        self.addCleanup(node.kill)
        return node

    def test_finished_node_keeps_its_pod(self):
        node = self.start("exit 0")
        self.assertIn("is done", node.stdout.readline())
        self.assertIsNone(node.poll())
        node.send_signal(signal.SIGTERM)
        self.assertEqual(node.wait(PATIENCE_S), 0)

    def test_failed_node_ends_its_pod(self):
        self.assertEqual(self.start("exit 2").wait(PATIENCE_S), 2)
        self.assertEqual(self.start("kill -KILL $$").wait(PATIENCE_S), 137)

    def test_sigterm_reaches_the_node(self):
        node = self.start(
            "trap 'echo drained; exit 0' TERM; echo runs; while true; do sleep 0.05; done"
        )
        self.assertEqual(node.stdout.readline(), "runs\n")
        node.send_signal(signal.SIGTERM)
        self.assertEqual(node.wait(PATIENCE_S), 0)
        self.assertEqual(node.stdout.read(), "drained\n")

    def test_sigterm_at_the_start_reaches_the_node_once(self):
        # Between the two places that pass it on, and before the node's process can take it.
        begin = 'node=$!\n'
        script = text_of("kubernetes", "run-node")
        self.assertEqual(script.count(begin + "#"), 1)
        script = script.replace(begin + "#", begin + "command kill -TERM $$\n#")
        script = 'kill() { echo "kill $1"; command kill "$@"; }\n' + script
        node = subprocess.run(
            ["sh", "-c", script, "run-node", "sleep", "1000"],
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        self.assertEqual(node.returncode, 143)
        self.assertEqual(node.stdout.count("kill -TERM"), 1, node.stdout)


class SystemdTest(unittest.TestCase):
    def units(self):
        """Yields (unit's text, program, flags) of each unit."""
        settings = dict(re.findall("^([A-Z_]+)=(.*)$", text_of("systemd", "pawl.env"), re.M))
        for path in sorted(glob.glob(os.path.join(HERE, "systemd", "*.service"))):
            unit = text_of("systemd", os.path.basename(path)).replace("\\\n", " ")
            words = shlex.split(
                re.search("^ExecStart=(.*)$", unit, re.M).group(1).replace("%i", "0")
            )
            flags = []
            for word in words[1:]:
                flags += settings[word[1:]].split() if word.startswith("$") else [word]
            yield unit, os.path.basename(words[0]), flags

    def test_programs_know_their_flags(self):
        for _, name, flags in self.units():
            flags_are_known(self, name, flags)

    def test_every_unit_uses_tls(self):
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        scheduler = re.search("^PAWL_SCHEDULER=.*$", text_of("systemd", "pawl.env"), re.M).group()
        programs = set()
        for unit, name, flags in self.units():
            programs.add(name)
            self.assertIn("\nEnvironment=PAWL_TLS_DIR=/etc/pawl/tls/%s\n" % ROLES[name], unit)
            if name != "pawl-scheduler":
                flags.append("--" + scheduler[len("PAWL_") :].lower())
            refuses_without_certificate(self, name, flags, folder)
        self.assertEqual(programs, set(ROLES))

    def test_stop_timeouts_suffice(self):
        unit = text_of("systemd", "pawl-server@.service")
        drain = int(re.search(r"--drain_timeout_s=(\d+)", unit).group(1))
        self.assertGreater(int(re.search(r"^TimeoutStopSec=(\d+)", unit, re.M).group(1)), drain)


# Imitations of Slurm's commands, for "nodes" that are all this machine.
FAKE_SRUN = r"""#!/bin/bash
tasks=1 output=/dev/null name=
while [[ "$1" == --* ]]; do
  case "$1" in
    --ntasks=*) tasks="${1#*=}" ;;
    --output=*) output="${1#*=}" ;;
    --job-name=*) name="${1#*=}" ;;
    --nodes=* | --ntasks-per-node=* | --nodelist=*) ;;
    --overlap | --cpu-bind=none | --no-kill | --kill-on-bad-exit=0 | --wait=0) ;;
    *) echo "srun: no option $1" >&2; exit 2 ;;
  esac
  shift
done
for ((task = 0; task < tasks; task++)); do
  SLURM_LOCALID="$task" "$@" > "${output//%t/$task}" 2>&1 &
  started+=($!)
done
trap 'echo "$name" >> "$0.terminated"; kill "${started[@]}" 2> /dev/null' TERM
code=0
for pid in "${started[@]}"; do
  wait "$pid" || code=$?
done
exit "$code"
"""
FAKE_SCONTROL = r"""#!/bin/bash
case "$1 $2" in
  "show hostnames") echo node-1 && echo node-2 ;;
  "requeue $SLURM_JOB_ID") touch "$0.requeued" ;;
  *) exit 1 ;;
esac
"""
FAKE_HOSTNAME = '#!/bin/bash\nif [[ "${1:-}" == -I ]]; then echo 127.0.0.1; else echo node; fi\n'


# A scheduler that listens and ends at once, with this metrics.json.
FAKE_SCHEDULER = r"""#!/bin/bash
for flag in "$@"; do
  case "$flag" in
    --data_dir=*) mkdir -p "${flag#*=}" && echo '%s' > "${flag#*=}/metrics.json" ;;
    --address_file=*) echo 127.0.0.1:1 > "${flag#*=}" ;;
  esac
done
"""
# A scheduler that begins when a file `go` exists beside it.
SLOW_SCHEDULER = r"""#!/bin/bash
touch "$0.waits"
while [[ ! -e "$(dirname "$0")/go" ]]; do sleep 0.05; done
exec %s "$@"
"""


# `pawlctl stop` reaches no scheduler, because it ends now: it waits for this file `stop`.
FAKE_PAWLCTL = r"""#!/bin/bash
touch "$(dirname "$0")/stop"
exit 3
"""
ENDS_WHEN_STOPPED = r"""
while [[ ! -e "$(dirname "$0")/stop" ]]; do sleep 0.05; done
"""


class SlurmTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        commands = os.path.join(self.folder, "commands")
        os.makedirs(commands)
        for name, text in (
            ("srun", FAKE_SRUN),
            ("scontrol", FAKE_SCONTROL),
            ("hostname", FAKE_HOSTNAME),
        ):
            self.write_program(os.path.join(commands, name), text)
        bundle = os.path.join(self.folder, "pawl", "bin")
        os.makedirs(bundle)
        for name in PROGRAMS:
            os.symlink(os.path.realpath(program(name)), os.path.join(bundle, name))
        os.symlink(
            os.path.join(HERE, "tls", "make_certificates"),
            os.path.join(bundle, "make_certificates"),
        )
        self.checkpoints = os.path.join(self.folder, "checkpoints")
        generate = os.path.join(HERE, "data", "generate_clicks")
        subprocess.run(
            [generate, "--samples=2000", os.path.join(self.folder, "train.libsvm")], check=True
        )
        self.environment = environment(
            PATH="%s:%s" % (commands, os.environ["PATH"]),
            PAWL=os.path.join(self.folder, "pawl"),
            JOB=os.path.join(self.folder, "job.pbtxt"),
            CHECKPOINTS=self.checkpoints,
            OUT=os.path.join(self.folder, "out"),
            LOCAL=os.path.join(self.folder, "local"),
            SLURM_JOB_ID="4711",
            SLURM_JOB_NUM_NODES="2",
            SLURM_JOB_NODELIST="node-[1-2]",
        )

    def write_program(self, path, text):
        if os.path.lexists(path):
            os.remove(path)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def bundled(self, name):
        return os.path.join(self.folder, "pawl", "bin", name)

    def write_job(self, epochs):
        with open(self.environment["JOB"], "w", encoding="utf-8") as file:
            file.write(
                """name: "clicks" seed: 7 data { train: "%s/train.libsvm" format: LIBSVM }
                model { fm { dim: 4 } }
                optimizer { sgd { learning_rate: 0.1 } } consistency { mode: SYNC }
                batch_size: 100 epochs: %d logical_workers: 2 partitions: 8 replicas: 2
                checkpoint { dir: "%s" }"""
                % (self.folder, epochs, self.checkpoints)
            )

    def submit(self, **more):
        log = open(os.path.join(self.folder, "log"), "w+", encoding="utf-8")
        self.addCleanup(log.close)
        batch = subprocess.Popen(
            ["bash", os.path.join(HERE, "slurm", "pawl.sbatch")],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(self.environment, **more),
            cwd=self.folder,
            start_new_session=True,
        )
        self.addCleanup(lambda: batch.poll() is None and os.killpg(batch.pid, signal.SIGKILL))
        return batch

    def log(self):
        texts = []
        for path in [os.path.join(self.folder, "log")] + sorted(
            glob.glob(os.path.join(self.folder, "out*", "*.log"))
        ):
            with open(path, encoding="utf-8") as file:
                texts.append("--- %s\n%s" % (path, file.read()))
        return "\n".join(texts)

    def status(self, out, tls_dir):
        with open(os.path.join(out, "scheduler.addr"), encoding="utf-8") as file:
            address = file.read().strip()
        return subprocess.run(
            [program("pawlctl"), "status", "--json", "--scheduler=" + address],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=environment(PAWL_TLS_DIR=tls_dir),
        )

    def steps(self, out, tls_dir=None):
        try:
            status = self.status(out, tls_dir or os.path.join(out, "tls", "operator"))
            return int(json.loads(status.stdout).get("steps", 0))
        except (OSError, ValueError):
            return 0

    def test_completed_job_is_not_run_again(self):
        self.write_job(epochs=2)
        batch = self.submit()
        self.assertEqual(batch.wait(2 * PATIENCE_S), 0, self.log())
        with open(
            os.path.join(self.environment["OUT"], "scheduler", "metrics.json"), encoding="utf-8"
        ) as file:
            self.assertEqual(json.load(file)["state"], "COMPLETED")
        self.assertFalse(os.path.exists(self.environment["LOCAL"]), "the servers' logs are left")
        self.assertEqual(len(glob.glob(os.path.join(self.checkpoints, "*-end"))), 1)
        again = self.submit(OUT=os.path.join(self.folder, "out-2"))
        self.assertEqual(again.wait(PATIENCE_S), 0)
        self.assertIn("has ended before", self.log())

    def test_only_complete_checkpoints_of_the_job_count(self):
        # Without a MANIFEST they are unfinished; the next two are of other jobs.
        for name, complete in (
            ("clicks-step-%020d" % 10, False),
            ("clicks-step-%020d-end" % 40, False),
            ("other-step-%020d-end" % 40, True),
            ("clicks-step-2-step-%020d" % 10, True),
        ):
            os.makedirs(os.path.join(self.checkpoints, name))
            if complete:
                with open(os.path.join(self.checkpoints, name, "MANIFEST"), "w", encoding="ascii"):
                    pass
        self.write_job(epochs=2)
        self.assertEqual(self.submit().wait(2 * PATIENCE_S), 0, self.log())
        self.assertNotIn("has ended before", self.log())
        made = os.path.join(self.checkpoints, "clicks-step-%020d-end" % 40, "MANIFEST")
        self.assertTrue(os.path.exists(made), self.log())

    def test_missing_final_checkpoint_is_a_failure(self):
        self.write_job(epochs=1)
        metrics = '{"end_checkpoint_failure": "the disk is full"}'
        self.write_program(self.bundled("pawl-scheduler"), FAKE_SCHEDULER % metrics)
        for name in ("pawl-server", "pawl-worker"):
            self.write_program(self.bundled(name), "#!/bin/bash\n")
        self.assertEqual(self.submit().wait(PATIENCE_S), 1, self.log())
        self.assertIn("the final checkpoint is missing", self.log())

    def test_exit_code_of_scheduler_that_ends_at_the_time_limit_is_kept(self):
        self.write_job(epochs=1)
        self.write_program(self.bundled("pawlctl"), FAKE_PAWLCTL)
        self.write_program(self.bundled("pawl-server"), "#!/bin/bash\n")
        worker = self.bundled("pawl-worker")
        self.write_program(worker, '#!/bin/bash\ntouch "$0.started"\n')
        requeued = os.path.join(self.folder, "commands", "scontrol.requeued")
        for metrics, code in (("{}", 0), ('{"end_checkpoint_failure": "the disk is full"}', 1)):
            with self.subTest(metrics=metrics):
                self.write_program(
                    self.bundled("pawl-scheduler"), FAKE_SCHEDULER % metrics + ENDS_WHEN_STOPPED
                )
                for path in (worker + ".started", self.bundled("stop"), requeued):
                    if os.path.exists(path):
                        os.remove(path)
                batch = self.submit(OUT=os.path.join(self.folder, "out-%d" % code), REQUEUE="1")
                wait_for("its start", lambda: os.path.exists(worker + ".started"))
                batch.send_signal(signal.SIGUSR1)
                self.assertEqual(batch.wait(PATIENCE_S), code, self.log())
                self.assertEqual(os.path.exists(requeued), code == 0)

    def test_job_file_without_a_name_is_named(self):
        with open(self.environment["JOB"], "w", encoding="utf-8") as file:
            file.write("batch_size: 100")
        self.assertEqual(self.submit().wait(PATIENCE_S), 2)
        self.assertIn("set NAME", self.log())

    def test_steps_that_do_not_end_with_the_job_are_terminated(self):
        self.write_job(epochs=1)
        self.write_program(self.bundled("pawl-scheduler"), FAKE_SCHEDULER % "{}")
        for name in ("pawl-server", "pawl-worker"):
            self.write_program(self.bundled(name), "#!/bin/bash\nexec /bin/sleep 1000\n")
        # The script's patience of 30 sleeps passes sooner.
        commands = os.path.join(self.folder, "commands")
        self.write_program(os.path.join(commands, "sleep"), "#!/bin/bash\nexec /bin/sleep 0.02\n")
        self.assertEqual(self.submit().wait(PATIENCE_S), 0, self.log())
        with open(os.path.join(commands, "srun.terminated"), encoding="ascii") as file:
            self.assertEqual(sorted(file.read().split()), ["pawl-server", "pawl-worker"])

    def test_time_limit_before_the_scheduler_listens_is_heeded(self):
        self.write_job(epochs=1000000)
        scheduler = self.bundled("pawl-scheduler")
        self.write_program(
            scheduler, SLOW_SCHEDULER % shlex.quote(os.path.realpath(program("pawl-scheduler")))
        )
        batch = self.submit()
        wait_for("its start", lambda: os.path.exists(scheduler + ".waits"))
        batch.send_signal(signal.SIGUSR1)
        with open(self.bundled("go"), "w", encoding="ascii"):
            pass
        self.assertEqual(batch.wait(2 * PATIENCE_S), 0, self.log())
        self.assertEqual(len(glob.glob(os.path.join(self.checkpoints, "*", "MANIFEST"))), 1)

    def test_every_process_uses_tls(self):
        certificates = os.path.join(self.folder, "certificates")
        make_certificates(certificates)
        self.write_job(epochs=1000000)
        batch = self.submit(TLS=certificates)
        out = self.environment["OUT"]
        wait_for(
            "steps",
            lambda: self.steps(out, os.path.join(certificates, "operator")) > 0
            or batch.poll() is not None,
        )
        self.assertIsNone(batch.poll(), self.log())
        # Servers and workers reach the scheduler only with certificates of its authority.
        self.assertEqual(self.status(out, "").returncode, 3)
        strangers = os.path.join(self.folder, "strangers")
        make_certificates(strangers)
        self.assertEqual(self.status(out, os.path.join(strangers, "operator")).returncode, 3)
        batch.send_signal(signal.SIGTERM)
        self.assertEqual(batch.wait(2 * PATIENCE_S), 0, self.log())

    def test_certificates_of_the_run_are_private_and_deleted(self):
        self.write_job(epochs=1000000)
        batch = self.submit()
        out = self.environment["OUT"]
        wait_for("steps", lambda: self.steps(out) > 0 or batch.poll() is not None)
        self.assertIsNone(batch.poll(), self.log())
        tls = os.path.join(out, "tls")
        self.assertEqual(os.stat(tls).st_mode & 0o077, 0)
        self.assertFalse(os.path.exists(os.path.join(tls, "authority", "key.pem")))
        self.assertEqual(self.status(out, "").returncode, 3)
        batch.send_signal(signal.SIGTERM)
        self.assertEqual(batch.wait(2 * PATIENCE_S), 0, self.log())
        self.assertFalse(os.path.exists(tls))

    def test_missing_certificate_is_named(self):
        self.write_job(epochs=1)
        certificates = os.path.join(self.folder, "certificates")
        make_certificates(certificates)
        os.remove(os.path.join(certificates, "worker", "key.pem"))
        self.assertEqual(self.submit(TLS=certificates).wait(PATIENCE_S), 2)
        self.assertIn("worker/key.pem", self.log())

    def test_job_resumes_from_checkpoint_at_time_limit(self):
        self.write_job(epochs=1000000)
        batch = self.submit()
        wait_for(
            "steps", lambda: self.steps(self.environment["OUT"]) > 0 or batch.poll() is not None
        )
        self.assertIsNone(batch.poll(), self.log())
        batch.send_signal(signal.SIGUSR1)
        self.assertEqual(batch.wait(2 * PATIENCE_S), 0, self.log())
        made = glob.glob(os.path.join(self.checkpoints, "clicks-step-*"))
        self.assertEqual(len(made), 1, self.log())

        out = os.path.join(self.folder, "out-1")
        again = self.submit(OUT=out, LOCAL=os.path.join(self.folder, "local-1"))
        wait_for("steps again", lambda: self.steps(out) > 0 or again.poll() is not None)
        self.assertIsNone(again.poll(), self.log())
        self.assertIn("starting from checkpoint %s" % os.path.basename(made[0]), self.log())
        again.send_signal(signal.SIGTERM)
        self.assertEqual(again.wait(2 * PATIENCE_S), 0, self.log())

    def wait_for_steps(self, batch, beyond=0):
        out = self.environment["OUT"]
        wait_for("steps", lambda: self.steps(out) > beyond or batch.poll() is not None)
        self.assertIsNone(batch.poll(), self.log())

    def signal_worker(self, name):
        worker = "pawl-worker --data_dir=%s/worker-0 " % self.environment["LOCAL"]
        found = subprocess.run(["pkill", "-" + name, "-f", worker], check=False)
        self.assertEqual(found.returncode, 0)

    def test_dead_worker_is_restarted(self):
        self.write_job(epochs=1000000)
        batch = self.submit()
        self.wait_for_steps(batch)
        self.signal_worker("KILL")
        wait_for("a restart", lambda: "is restarted (1 of" in self.log())
        # It joins again first.
        self.wait_for_steps(batch, self.steps(self.environment["OUT"]))
        # A machine that hangs for longer than the lease.
        self.signal_worker("STOP")
        wait_for("its lease's end", lambda: "no heartbeat for" in self.log())
        self.signal_worker("CONT")
        wait_for("another restart", lambda: "ended with 1 and is restarted (2 of" in self.log())
        batch.send_signal(signal.SIGTERM)
        self.assertEqual(batch.wait(2 * PATIENCE_S), 0, self.log())

    def test_named_output_folder_can_be_used_again(self):
        self.write_job(epochs=1000000)
        for run in range(3):
            batch = self.submit()
            self.wait_for_steps(batch)
            batch.send_signal(signal.SIGUSR1)
            self.assertEqual(batch.wait(2 * PATIENCE_S), 0, self.log())
            made = glob.glob(os.path.join(self.checkpoints, "clicks-step-*"))
            self.assertEqual(len(made), run + 1, self.log())

    def test_second_run_spares_the_output_of_the_first(self):
        self.write_job(epochs=1000000)
        batch = self.submit()
        self.wait_for_steps(batch)
        second = self.submit()
        self.assertEqual(second.wait(PATIENCE_S), 2)
        self.assertIn("another run uses OUT", self.log())
        self.wait_for_steps(batch, self.steps(self.environment["OUT"]))
        batch.send_signal(signal.SIGTERM)
        self.assertEqual(batch.wait(2 * PATIENCE_S), 0, self.log())
        # A run that has nothing to do leaves the result.
        os.makedirs(os.path.join(self.checkpoints, "clicks-step-%020d-end" % 40))
        with open(
            os.path.join(self.checkpoints, "clicks-step-%020d-end" % 40, "MANIFEST"),
            "w",
            encoding="ascii",
        ):
            pass
        self.assertEqual(self.submit().wait(PATIENCE_S), 0)
        self.assertTrue(
            os.path.exists(os.path.join(self.environment["OUT"], "scheduler", "metrics.json"))
        )

    def test_workers_get_their_flags(self):
        self.write_job(epochs=1)
        self.write_program(self.bundled("pawl-scheduler"), FAKE_SCHEDULER % "{}")
        self.write_program(self.bundled("pawl-server"), "#!/bin/bash\n")
        self.write_program(self.bundled("pawl-worker"), '#!/bin/bash\necho "$@"\n')
        batch = self.submit(WORKER_FLAGS="--insecure_collectives --listen=127.0.0.1:0")
        self.assertEqual(batch.wait(PATIENCE_S), 0, self.log())
        self.assertIn("--device=cpu --insecure_collectives --listen=127.0.0.1:0\n", self.log())


if __name__ == "__main__":
    unittest.main(verbosity=2)
